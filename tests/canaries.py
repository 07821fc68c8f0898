"""Made-up secrets of every type, each in a text of its own: what a transcript might hold, and what must not survive."""

from __future__ import annotations

import base64
import random
import string
from dataclasses import dataclass

_random = random.Random(20)
_ALNUM = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"
_UPPER = string.ascii_uppercase + string.digits


@dataclass(frozen=True)
class Canary:
    """`text` holds `secret`, of type `kind`."""

    kind: str
    text: str
    secret: str

    def pieces(self) -> list[str]:
        """What must not be found anywhere: each line's halves."""
        lines = [line for line in self.secret.split("\n") if len(line) >= 3 and "KEY" not in line and ": " not in line]
        return [
            piece
            for line in lines
            for piece in ([line] if len(line) < 16 else [line[: len(line) // 2], line[len(line) // 2 :]])
        ]


def _draw(n: int, alphabet: str = _ALNUM) -> str:
    drawn = "".join(_random.choice(alphabet) for _ in range(n - 2))
    return drawn[: n // 2] + _random.choice([c for c in alphabet if c.isdigit()]) + drawn[n // 2 :] + alphabet[0]


def _uuid() -> str:
    return "-".join(_draw(n, _HEX) for n in (8, 4, 4, 4, 12))


def _pem(words: str, lines: int, head: str = "") -> str:
    body = "\n".join(_draw(64, _ALNUM + "+/") for _ in range(lines))
    return f"-----BEGIN {words}-----\n{head}{body}\n{_draw(30)}==\n-----END {words}-----"


def _plain(kind: str, secret: str, text: str = "{}") -> Canary:
    return Canary(kind, text.format(secret), secret)


def canaries() -> list[Canary]:
    """At least one of every type, the same in every run."""
    _random.seed(20)
    putty = "\n".join(_draw(64, _ALNUM + "+/") for _ in range(4))
    return [
        *(
            _plain(kind, prefix + _draw(n, alphabet) + end, "the value {} was pasted")
            for kind, prefix, n, alphabet, end in (
                ("aws_key", "AKIA", 16, _UPPER, ""),
                ("aws_key", "ASIA", 16, _UPPER, ""),
                ("github_token", "ghp_", 36, _ALNUM, ""),
                ("github_token", "ghs_", 36, _ALNUM, ""),
                ("github_token", "github_pat_", 82, _ALNUM + "_", ""),
                ("gitlab_token", "glpat-", 20, _ALNUM, ""),
                ("gitlab_token", "glrt-", 20, _ALNUM, ""),
                ("slack_token", "xoxb-123456789012-1234567890123-", 24, _ALNUM, ""),
                ("slack_token", "xapp-1-A012345-", 40, _ALNUM, ""),
                ("anthropic_key", "sk-ant-api03-", 95, _ALNUM, ""),
                ("openrouter_key", "sk-or-v1-", 64, _HEX, ""),
                ("openai_key", "sk-proj-", 64, _ALNUM, ""),
                ("openai_key", "sk-", 48, _ALNUM, ""),
                ("google_key", "AIza", 35, _ALNUM, ""),
                ("google_oauth", "ya29.", 120, _ALNUM, ""),
                ("google_oauth", "GOCSPX-", 28, _ALNUM, ""),
                ("google_oauth", "1//0", 60, _ALNUM, ""),
                ("stripe_key", "sk_live_", 24, _ALNUM, ""),
                ("stripe_key", "rk_test_", 99, _ALNUM, ""),
                ("stripe_key", "whsec_", 32, _ALNUM, ""),
                ("npm_token", "npm_", 36, _ALNUM, ""),
                ("pypi_token", "pypi-AgEIcHlwaS5vcmc", 120, _ALNUM, ""),
                ("rubygems_key", "rubygems_", 48, _HEX, ""),
                ("nuget_key", "oy2", 43, string.ascii_lowercase + string.digits, ""),
                ("crates_token", "cio", 32, _ALNUM, ""),
                ("hf_token", "hf_", 34, _ALNUM, ""),
                ("twilio_key", "SK", 32, _HEX, ""),
                ("sendgrid_key", "SG." + _draw(22) + ".", 43, _ALNUM, ""),
                ("mailgun_key", "key-", 32, _HEX, ""),
                ("brevo_key", "xkeysib-" + _draw(64, _HEX) + "-", 16, _ALNUM, ""),
                ("digitalocean_token", "dop_v1_", 64, _HEX, ""),
                ("heroku_key", "HRKU-AA", 58, _ALNUM, ""),
                ("shopify_token", "shpat_", 32, _HEX, ""),
                ("square_token", "sq0atp-", 22, _ALNUM, ""),
                ("square_token", "EAAA", 60, _ALNUM, ""),
                ("facebook_token", "EAAC", 120, _ALNUM, ""),
                ("cloudflare_key", "v1.0-" + _draw(24, _HEX) + "-", 146, _HEX, ""),
                ("cloudflare_key", "cfat_", 48, _ALNUM, ""),
                ("vault_token", "hvs.", 90, _ALNUM, ""),
                ("databricks_token", "dapi", 32, _HEX, ""),
                ("linear_key", "lin_api_", 40, _ALNUM, ""),
                ("notion_token", "secret_", 43, _ALNUM, ""),
                ("notion_token", "ntn_", 46, _ALNUM, ""),
                ("sentry_token", "sntrys_", 80, _ALNUM, ""),
                ("planetscale_token", "pscale_tkn_", 43, _ALNUM, ""),
                ("grafana_token", "glsa_" + _draw(32) + "_", 8, _HEX, ""),
                ("newrelic_key", "NRAK-", 27, _UPPER, ""),
                ("postman_key", "PMAK-" + _draw(24, _HEX) + "-", 34, _HEX, ""),
                ("dynatrace_token", "dt0c01." + _draw(24, _UPPER) + ".", 64, _UPPER, ""),
                ("docker_token", "dckr_pat_", 27, _ALNUM, ""),
                ("atlassian_token", "ATATT3xFfGF0", 180, _ALNUM, ""),
                ("bitbucket_token", "ATBB", 32, _ALNUM, ""),
                ("figma_token", "figd_", 40, _ALNUM, ""),
                ("replicate_token", "r8_", 37, _ALNUM, ""),
                ("groq_key", "gsk_", 52, _ALNUM, ""),
                ("xai_key", "xai-", 80, _ALNUM, ""),
                ("perplexity_key", "pplx-", 48, _ALNUM, ""),
                ("elevenlabs_key", "sk_", 48, _HEX, ""),
                ("langsmith_key", "lsv2_pt_" + _draw(32, _HEX) + "_", 10, _HEX, ""),
                ("pinecone_key", "pcsk_", 70, _ALNUM, ""),
                ("supabase_key", "sbp_", 40, _HEX, ""),
                ("netlify_token", "nfp_", 40, _ALNUM, ""),
                ("fly_token", "fm2_", 200, _ALNUM, ""),
                ("tailscale_key", "tskey-auth-", 30, _ALNUM, ""),
                ("doppler_token", "dp.pt.", 43, _ALNUM, ""),
                ("onepassword_token", "ops_eyJ", 250, _ALNUM, ""),
                ("age_key", "AGE-SECRET-KEY-1", 58, _UPPER, ""),
                ("circleci_token", "CCIPAT_" + _draw(22) + "_", 40, _HEX, ""),
                ("sonar_token", "sqp_", 40, _HEX, ""),
                ("artifactory_key", "AKCp", 69, _ALNUM, ""),
                ("pulumi_token", "pul-", 40, _HEX, ""),
                ("contentful_token", "CFPAT-", 43, _ALNUM, ""),
                ("dropbox_token", "sl.B", 136, _ALNUM, ""),
                ("alibaba_key", "LTAI", 20, _ALNUM, ""),
                ("mapbox_token", "sk.eyJ" + _draw(60) + ".", 22, _ALNUM, ""),
                ("razorpay_key", "rzp_live_", 14, _ALNUM, ""),
                ("typeform_token", "tfp_", 44, _ALNUM, ""),
                ("readme_key", "rdme_", 70, string.ascii_lowercase + string.digits, ""),
                ("prefect_key", "pnu_", 36, _ALNUM, ""),
                ("buildkite_token", "bkua_", 40, _HEX, ""),
                ("azure_secret", "aB3" + "8Q~", 34, _ALNUM, ""),
                ("azure_devops_token", _draw(76) + "AZDO", 4, _ALNUM, ""),
                ("terraform_token", _draw(14) + ".atlasv1.", 67, _ALNUM, ""),
                ("mailchimp_key", "", 32, _HEX, "-us21"),
            )
        ),
        _plain("slack_webhook", f"T01ABCDEF/B01ABCDEF/{_draw(24)}", "curl https://hooks.slack.com/services/{}"),
        _plain("discord_webhook", _draw(68), "https://discord.com/api/webhooks/123456789012345678/{}"),
        _plain("discord_token", f"MTA{_draw(21)}.G{_draw(5)}.{_draw(38)}", "discord client.run('{}')"),
        _plain("telegram_token", f"AA{_draw(33)}", "bot 123456789:{} answers"),
        _plain("azure_key", _draw(86) + "==", "AccountName=a;AccountKey={};EndpointSuffix=core.windows.net"),
        _plain("azure_key", _draw(43) + "=", "Endpoint=sb://a/;SharedAccessKeyName=b;SharedAccessKey={}"),
        _plain("azure_sas", _draw(43) + "%3D", "https://a.blob.core.windows.net/c?sv=2022-11-02&sr=c&sig={}"),
        _plain("jwt", f"eyJ{_draw(33)}.eyJ{_draw(90)}.{_draw(43)}", "got {} back"),
        _plain("aws_secret", _draw(40, _ALNUM + "/+"), "aws_secret_access_key = {}"),
        _plain("aws_session_token", _draw(700, _ALNUM + "/+"), "AWS_SESSION_TOKEN={}"),
        _plain("heroku_key", _uuid(), "HEROKU_API_KEY={}"),
        _plain("datadog_key", _draw(32, _HEX), "DD_API_KEY: {}"),
        _plain("twilio_token", _draw(32, _HEX), "TWILIO_AUTH_TOKEN={}"),
        _plain("cloudflare_key", _draw(40), 'CLOUDFLARE_API_TOKEN="{}"'),
        _plain("mailgun_key", f"{_draw(32, _HEX)}-{_draw(8, _HEX)}-{_draw(8, _HEX)}", "MAILGUN_KEY={}"),
        _plain("vault_token", "s." + _draw(24), "VAULT_TOKEN={}"),
        _plain("url_password", "q7!nqzLx", "postgres://app:{}@db.internal:5432/shop"),
        _plain("url_password", "p@q7zz:w", "mongodb+srv://app:{}@cluster0.mongodb.net/?w=majority"),
        _plain("url_password", "zq4tvw9", "redis://:{}@cache:6379/0"),
        _plain("url_token", _draw(40, _HEX), "git clone https://{}@github.com/a/b"),
        _plain("bearer", _draw(40), "curl -H 'Authorization: Bearer {}' https://api.shop.dev/v1"),
        _plain("basic_auth", base64.b64encode(b"ana:zebraquilt").decode(), "Authorization: Basic {}"),
        _plain("basic_auth", base64.b64encode(b"ana:zebraquilts7").decode(), '"ghcr.io": {{"auth": "{}"}}'),
        _plain("cookie", _draw(26), "Set-Cookie: session={}; Path=/; HttpOnly"),
        _plain("cookie", "s%3A" + _draw(60), "-H 'Cookie: theme=dark; connect.sid={}; lang=en'"),
        _plain("netrc_password", "zq7kwuvx", "machine api.shop.dev login ana password {}"),
        _plain("netrc_password", "zq8kwuvx", "machine api.shop.dev\n  login ana\n  password {}\n"),
        _plain("pgpass_password", "zq9kwuvx", "db.internal:5432:shop:app:{}"),
        _plain("command_password", "zq7twuvx", "curl -u ana:{} https://api.shop.dev"),
        _plain("command_password", "zq6twuvx", "mysql -h db -u app -p{} shop"),
        _plain("command_password", "zq5twuvx", "sshpass -p {} ssh app@db"),
        _plain("assignment", "tr0ub4dor3", "DB_PASSWORD={}"),
        _plain("assignment", "hunter2", "password: {}"),
        _plain("assignment", "p(ss)w0rd$1,x;y", 'password = "{}"'),
        _plain("assignment", "zQ4!kwuv", "const cfg = {{ dbPassword: '{}' }}"),
        _plain("assignment", "zqx7kwuv", "<password>{}</password>"),
        _plain("assignment", "zqx5kwuv", "Server=db;User Id=app;Password={};Encrypt=true"),
        _plain("assignment", "zqx4kwuv", "- name: DB_PASSWORD\n  value: {}\n"),
        _plain("assignment", "zqx3kwuv", "psql --password {} shop"),
        _plain("assignment", _draw(32, _HEX), "api_key: '{}'"),
        _plain("assignment", _draw(20), '"clientSecret": "{}"'),
        _plain("assignment", _draw(40, _ALNUM + "+/"), "SIGNING_SECRET={}"),
        _plain("assignment", _draw(24), "token := `{}`"),
        _plain("assignment", _draw(24), 'os.environ["SHOP_TOKEN"] = "{}"'),
        _plain("assignment", _draw(1200), "session_token={}"),
        _plain("private_key", _pem("RSA PRIVATE KEY", 24), "cat id_rsa\n{}\ndone"),
        _plain("private_key", _pem("OPENSSH PRIVATE KEY", 6)),
        _plain("private_key", _pem("EC PRIVATE KEY", 3)),
        _plain("private_key", _pem("ENCRYPTED PRIVATE KEY", 28)),
        _plain("private_key", _pem("RSA PRIVATE KEY", 24, "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00FF\n\n")),
        _plain("private_key", _pem("PGP PRIVATE KEY BLOCK", 40, "Version: GnuPG v2\n\n")),
        _plain(
            "private_key",
            putty,
            "PuTTY-User-Key-File-3: ssh-rsa\nPrivate-Lines: 4\n{}\nPrivate-MAC: " + _draw(64, _HEX),
        ),
    ]
