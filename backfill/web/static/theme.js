// Before the first paint: the theme that was chosen here earlier, if any. Without one the system's setting holds.
try {
  const theme = localStorage.getItem("backfill-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch (error) {
  // Storage may be switched off; the system's setting holds.
}
