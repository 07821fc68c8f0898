"""The rules: for each type of secret its keywords and the pattern that is tried where a keyword stands.

Reads nothing and decides nothing: `spans` runs the rules, `values` judges what a pattern cannot. Vendors' formats are
those that they publish. Deliberately absent: rules for identifiers that are public by design (account SIDs, DSNs,
publishable keys).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from backfill.privacy.values import (
    is_basic,
    is_bearer,
    is_command_password,
    is_secret_value,
    is_url_password,
    looks_random,
)

# A token may follow an escape of the text that quotes it: \n in JSON or code, %20 in an URL, a colour of a terminal.
_B = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtfb])|(?<=%[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4})|(?<=[0-9]m))"
_END = r"(?![A-Za-z0-9])"
_WS = r"(?:\s|\\[nrt])"
# From a name to its value in code, env, YAML, JSON (quoted again and again) and XML attributes.
_SEP = r"""["'`\\]{0,8}\]?\s{0,8}(?:=>|:=|==|=|:)\s{0,8}(?:[a-z]{0,2}["'`\\]{1,8})?"""
_MOCK = re.compile(r"x{8}|X{8}|\*{4}|(?i:your[_-])")


@dataclass(frozen=True, slots=True)
class Rule:
    """One type. `pattern` is matched `before` characters ahead of a keyword (lower case, in the folded text).

    Group `value` is what is replaced, or all of the match; `accept` has the last word.
    """

    kind: str
    keywords: tuple[str, ...]
    pattern: re.Pattern[str]
    accept: Callable[[re.Match[str]], bool] | None = None
    before: int = 0


def _not_mock(match: re.Match[str]) -> bool:
    return not _MOCK.search(match[0])


def _random(match: re.Match[str]) -> bool:
    return looks_random(match["value"])


def _prefixed(kind: str, keywords: str, pattern: str) -> Rule:
    """A token that its own prefix gives away; `keywords` are the prefixes."""
    return Rule(kind, tuple(keywords.split()), re.compile(_B + pattern), _not_mock)


def _named(kind: str, keywords: str, value: str) -> Rule:
    """A value of a known shape that is assigned to a name in which the vendor's stands."""
    name = "|".join(re.escape(k) for k in keywords.split())
    pattern = rf"(?i:{name})[\w.-]{{0,60}}{_SEP}(?P<value>{value}){_END}"
    return Rule(kind, tuple(keywords.split()), re.compile(pattern), _not_mock)


# (type, prefixes, pattern)
_PREFIXED = (
    ("aws_key", "akia asia abia acca", rf"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{{16}}{_END}"),
    ("github_token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{36,255}"),
    ("github_token", "github_pat_", r"github_pat_\w{22,255}"),
    (
        "gitlab_token",
        "glpat- gldt- glrt- glptt- glcbt- glsoat- glft- glimt- glagent- gloas- glffct-",
        r"gl(?:pat|dt|rt|ptt|cbt|soat|ft|imt|agent|oas|ffct)-[\w.-]{20,300}",
    ),
    ("slack_token", "xox", r"xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{10,400}"),
    ("slack_token", "xapp-", r"xapp-[A-Za-z0-9-]{10,400}"),
    ("anthropic_key", "sk-ant-", r"sk-ant-[\w-]{16,255}"),
    ("openrouter_key", "sk-or-", r"sk-or-(?:v\d-)?[\w-]{20,255}"),
    ("openai_key", "sk-", r"sk-(?:proj-|svcacct-|admin-|None-)?(?=[\w-]{0,254}\d)[A-Za-z0-9_-]{20,255}"),
    ("google_key", "aiza", r"AIza[\w-]{35}"),
    ("google_oauth", "ya29.", r"ya29\.[\w.-]{20,2000}"),
    ("google_oauth", "gocspx-", r"GOCSPX-[\w-]{24,40}"),
    ("google_oauth", "1//0", r"1//0[\w-]{40,250}"),
    ("azure_key", "accountkey=", r"(?i:AccountKey)=(?P<value>[A-Za-z0-9+/]{80,100}={0,2})"),
    ("azure_key", "sharedaccesskey=", r"(?i:SharedAccessKey)=(?P<value>[A-Za-z0-9+/]{40,100}={0,2})"),
    ("azure_sas", "sig=", r"sig=(?P<value>(?:[A-Za-z0-9/+]|%[0-9A-Fa-f]{2}){40,64}(?:={0,2}))"),
    ("discord_webhook", "discord", r"discord(?:app)?\.com/api/(?:v\d+/)?webhooks/\d{15,22}/(?P<value>[\w-]{50,100})"),
    (
        "slack_webhook",
        "hooks.slack.com",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<value>[\w/-]{20,200})",
    ),
    ("discord_token", "discord", r"(?i:discord)[^\n]{0,80}?(?P<value>[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,45})"),
    ("discord_token", "bot ", r"(?i:bot) (?P<value>[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,45})"),
    ("stripe_key", "sk_live_ sk_test_ rk_live_ rk_test_", r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,255}"),
    ("stripe_key", "whsec_", r"whsec_[A-Za-z0-9+/=]{24,255}"),
    ("npm_token", "npm_", r"npm_[A-Za-z0-9]{36}"),
    ("pypi_token", "pypi-", r"pypi-AgE[\w-]{50,1000}"),
    ("rubygems_key", "rubygems_", r"rubygems_[0-9a-f]{48}"),
    ("nuget_key", "oy2", rf"oy2[a-z0-9]{{43}}{_END}"),
    ("crates_token", "cio", rf"cio[A-Za-z0-9]{{32}}{_END}"),
    ("hf_token", "hf_ api_org_", r"(?:hf|api_org)_[A-Za-z0-9]{30,100}"),
    ("twilio_key", " ".join(f"sk{digit:x}" for digit in range(16)), rf"SK[0-9a-f]{{32}}{_END}"),
    ("sendgrid_key", "sg.", r"SG\.[\w-]{16,32}\.[\w-]{16,64}"),
    ("mailgun_key", "key-", rf"key-[0-9a-f]{{32}}{_END}"),
    ("brevo_key", "xkeysib- xsmtpsib-", r"x(?:key|smtp)sib-[0-9a-f]{64}-[A-Za-z0-9]{16}"),
    ("digitalocean_token", "dop_v1_ doo_v1_ dor_v1_", r"do[opr]_v1_[0-9a-f]{64}"),
    ("heroku_key", "hrku-", r"HRKU-[\w-]{36,100}"),
    ("shopify_token", "shpat_ shpca_ shppa_ shpss_", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    ("square_token", "sq0", r"sq0[a-z]{3}-[\w-]{22,60}"),
    ("square_token", "eaaa", r"EAAA[A-Za-z0-9_-]{60}(?![\w-])"),
    ("facebook_token", "eaa", r"EAA[A-Za-z0-9]{80,400}"),
    ("cloudflare_key", "v1.0-", r"v1\.0-[0-9a-f]{24}-[0-9a-f]{146}"),
    ("cloudflare_key", "cfat_ cfut_ cfk_", r"cf(?:at|ut|k)_[A-Za-z0-9]{40,100}"),
    ("vault_token", "hvs. hvb. hvr.", r"hv[sbr]\.[\w-]{20,300}"),
    ("databricks_token", "dapi", r"dapi[0-9a-f]{32}(?:-\d)?"),
    ("linear_key", "lin_api_ lin_oauth_", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,100}"),
    ("notion_token", "secret_", rf"secret_[A-Za-z0-9]{{43}}{_END}"),
    ("notion_token", "ntn_", r"ntn_[A-Za-z0-9]{40,60}"),
    ("sentry_token", "sntrys_ sntryu_", r"sntry[su]_[\w+/=-]{40,400}"),
    ("planetscale_token", "pscale_", r"pscale_(?:tkn|pw|oauth)_[\w.=-]{30,100}"),
    ("grafana_token", "glc_ glsa_", r"gl(?:c|sa)_[\w+/=]{32,400}"),
    ("newrelic_key", "nrak- nrii- nrra-", r"NR(?:AK|II|RA)-[A-Za-z0-9_-]{27,60}"),
    ("postman_key", "pmak-", r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    ("dynatrace_token", "dt0", r"dt0[a-z]\d\d\.[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    ("docker_token", "dckr_pat_ dckr_oat_", r"dckr_[po]at_[\w-]{20,100}"),
    ("atlassian_token", "atatt3 atctt3", r"AT[AC]TT3[\w=-]{60,400}"),
    ("bitbucket_token", "atbb", r"ATBB[A-Za-z0-9]{32}"),
    ("figma_token", "figd_", r"figd_[\w-]{36,100}"),
    ("replicate_token", "r8_", r"r8_[A-Za-z0-9]{37}"),
    ("groq_key", "gsk_", r"gsk_[A-Za-z0-9]{40,100}"),
    ("xai_key", "xai-", r"xai-[A-Za-z0-9]{60,120}"),
    ("perplexity_key", "pplx-", r"pplx-[A-Za-z0-9]{40,100}"),
    ("elevenlabs_key", "sk_", rf"sk_[0-9a-f]{{48}}{_END}"),
    ("langsmith_key", "lsv2_", r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    ("pinecone_key", "pcsk_", r"pcsk_\w{40,100}"),
    ("supabase_key", "sbp_ sb_secret_", r"(?:sbp_[0-9a-f]{40}|sb_secret_[\w-]{24,80})"),
    ("netlify_token", "nfp_", r"nfp_[A-Za-z0-9]{36,60}"),
    ("fly_token", "fm1 fm2_ fo1_", r"(?:fm[12][_a-z]{0,2}[A-Za-z0-9+/=,_]{60,2000}|fo1_[\w-]{40,60})"),
    ("tailscale_key", "tskey-", r"tskey-[a-z]{2,12}-[A-Za-z0-9-]{16,100}"),
    ("doppler_token", "dp.", r"dp\.(?:pt|st|sa|ct|scim|audit)\.[\w.-]{40,100}"),
    ("onepassword_token", "ops_eyj", r"ops_eyJ[\w+/=-]{100,4000}"),
    ("age_key", "age-secret-key-1", r"AGE-SECRET-KEY-1[A-Z0-9]{58}"),
    ("circleci_token", "ccipat_ ccipra_", r"CCIP(?:AT|RA)_[A-Za-z0-9]{20,30}_[0-9a-f]{40}"),
    ("sonar_token", "sqp_ squ_ sqa_", r"sq[pua]_[0-9a-f]{40}"),
    ("artifactory_key", "akcp", r"AKCp[A-Za-z0-9]{60,80}"),
    ("pulumi_token", "pul-", rf"pul-[0-9a-f]{{40}}{_END}"),
    ("contentful_token", "cfpat-", r"CFPAT-[\w-]{43}"),
    ("dropbox_token", "sl.", r"sl\.[A-Za-z0-9][\w-]{120,400}"),
    ("alibaba_key", "ltai", rf"LTAI[A-Za-z0-9]{{12,26}}{_END}"),
    ("mapbox_token", "sk.eyj", r"sk\.eyJ[\w-]{20,400}\.[\w-]{16,100}"),
    ("razorpay_key", "rzp_live_ rzp_test_", r"rzp_(?:live|test)_[A-Za-z0-9]{14}"),
    ("typeform_token", "tfp_", r"tfp_[\w-]{40,80}"),
    ("readme_key", "rdme_", r"rdme_[a-z0-9]{70}"),
    ("prefect_key", "pnu_ pnb_", r"pn[ub]_[A-Za-z0-9]{36}"),
    ("buildkite_token", "bkua_", r"bkua_[0-9a-f]{40}"),
)

_NAMES = (
    "passw", "passphrase", "passwd", "pwd", "secret", "token", "api_key", "apikey", "api-key", "app_key", "appkey",
    "auth_key", "authkey", "access_key", "accesskey", "access-key", "account_key", "private_key", "privatekey",
    "signing_key", "encryption_key", "master_key", "credential", "authorization",
)  # fmt: skip
_NAME = (
    r"(?P<name>passw(?:or)?d|passphrase|pwd|secret|token|api[_-]?key|app_?key|auth_?key|access[_-]?key|account_key|"
    r"private_?key|signing_key|encryption_key|master_key|credential|authorization)(?P<suffix>s?[\w-]{0,40})"
)
ASSIGNED_NAME = re.compile(_NAME, re.IGNORECASE)

# In order of precedence: where spans overlap, the type of the first rule names the union.
RULES: tuple[Rule, ...] = (
    *(_prefixed(*row) for row in _PREFIXED),
    Rule(
        "jwt",
        ("eyj",),
        # Cut off at the end of the text it is still one.
        re.compile(
            r"(?:(?<![\w-])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))eyJ[\w-]{12,8000}"
            r"(?:\.eyJ[\w-]{8,16000}\.[\w-]{8,8000}|\.eyJ[\w-]{0,16000}\.?[\w-]{0,8000}\Z|\.?\Z|\.\.[\w.-]{20,16000})"
        ),
    ),
    Rule("telegram_token", (":aa",), re.compile(r"(?<=\d{8}):(?P<value>AA[\w-]{33})(?![\w-])")),
    Rule("azure_secret", ("7q~", "8q~"), re.compile(r"[\w~.-]{3}[78]Q~[\w~.-]{31,34}"), None, 3),
    Rule("azure_devops_token", ("azdo",), re.compile(rf"[A-Za-z0-9]{{76}}AZDO[A-Za-z0-9]{{4}}{_END}"), None, 76),
    Rule("terraform_token", (".atlasv1.",), re.compile(r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,100}"), None, 14),
    Rule("mailchimp_key", ("-us",), re.compile(rf"[0-9a-f]{{32}}-us\d{{1,2}}{_END}"), None, 32),
    _named("aws_secret", "aws_secret secret_access_key secretaccesskey", r"[A-Za-z0-9/+]{40}"),
    _named("aws_session_token", "aws_session_token sessiontoken", r"[A-Za-z0-9/+=]{100,4000}"),
    _named("heroku_key", "heroku", r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    _named("datadog_key", "datadog dd_api dd_app", r"[0-9a-fA-F]{32}(?:[0-9a-fA-F]{8})?"),
    _named("twilio_token", "twilio", r"[0-9a-f]{32}"),
    _named("cloudflare_key", "cloudflare cf_api", r"(?:[\w-]{40}|[0-9a-f]{37})"),
    _named("mailgun_key", "mailgun", r"[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}"),
    _named("vault_token", "vault_", r"s\.[A-Za-z0-9]{24}"),
    Rule(
        "url_password",
        ("://", r":\/\/"),
        re.compile(
            r""":(?://|\\/\\/)(?P<user>[^\s/:@"'`<>\\]{0,200}):(?P<value>[^\s/"'`<>\\]{1,400})@(?=[\w\[.$%{-])"""
        ),
        is_url_password,
    ),
    Rule("url_token", ("://",), re.compile(r"://(?P<value>[A-Za-z0-9_-]{20,200})@(?=[\w.-])"), _random),
    Rule(
        "basic_auth",
        ("basic",),
        re.compile(r"(?i:basic)(?:\s|%20){1,4}(?P<value>[A-Za-z0-9+/_-]{8,2000}={0,2})"),
        is_basic,
    ),
    Rule(
        "basic_auth",
        ("auth",),
        re.compile(r"""(?i:auth)["'\\]{0,8}\s{0,4}[:=]\s{0,4}["'\\]{0,8}(?P<value>[A-Za-z0-9+/]{8,2000}={0,2})"""),
        is_basic,
    ),
    Rule(
        "bearer",
        ("bearer",),
        re.compile(r"(?i:bearer)(?:\s|%20|\+){1,4}(?P<value>[A-Za-z0-9._~+/=:|-]{16,8000})"),
        is_bearer,
    ),
    Rule(
        "netrc_password",
        ("login",),
        re.compile(
            rf"login{_WS}{{1,20}}(?!with|and|via)\S{{1,200}}?{_WS}{{1,20}}password{_WS}{{1,20}}(?P<value>[^\s\"'\\]{{3,400}})"
        ),
        is_command_password,
    ),
    Rule(
        "pgpass_password",
        (":5432:", ":5433:", ":6432:", ":*:"),
        re.compile(r":(?:\d{4,5}|\*):[^:\s]{1,100}:(?P<user>[^:\s]{1,100}):(?P<value>[^\s\"'\\]{3,400})"),
        is_command_password,
    ),
    Rule(
        "command_password",
        (" -u", "--user"),
        re.compile(
            r"""(?: -u\s{0,4}|--user(?:\s{1,4}|=))["'\\]{0,4}(?P<user>[^\s:"'\\]{1,100}):(?P<value>[^\s"'\\]{3,400})"""
        ),
        is_command_password,
    ),
    Rule(
        "command_password",
        ("sshpass", "mysql", "redis-cli"),
        re.compile(
            r"""(?:sshpass\s{1,4}-p\s{0,4}|mysql[a-z]{0,8}\s[^\n|;]{0,200}?(?<=\s)-p|redis-cli\s[^\n|;]{0,200}?(?<=\s)-a\s{1,4})"""
            r"""["'\\]{0,4}(?P<value>[^\s"'\\]{4,400})"""
        ),
        is_command_password,
    ),
    Rule(
        "assignment",
        _NAMES,
        re.compile(
            rf"""{_NAME}(?:{_SEP}|["'\\]{{1,8}}\s{{0,4}},?\s{{0,60}}["'\\]{{0,8}}(?i:value){_SEP}|>|\s{{0,4}}(?:\n|\\{{1,8}}n)\s{{1,60}}value:\s{{1,4}}["']?)"""
            r"""(?:(?<=["'`])(?P<quoted>(?:[^\s"'`\\]|\\(?![\\"'`nrtu])){6,4000})(?=\\{0,8}["'`])|"""
            r"""(?P<value>[^\s"'`\\,;<>&]{6,4000}))""",
            re.IGNORECASE,
        ),
        is_secret_value,
    ),
    Rule(
        "assignment",
        _NAMES,
        re.compile(rf"""(?<=-){_NAME}\s{{1,4}}["'\\]{{0,4}}(?P<value>[^\s"'`\\,;<>]{{6,4000}})""", re.IGNORECASE),
        is_secret_value,
    ),
)
