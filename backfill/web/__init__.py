"""The web page and its JSON API: `backfill serve`. Needs the extra `web`; nothing on the light side imports it."""
