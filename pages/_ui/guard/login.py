"""The page that asks for the token, and the one that sends a visitor from another site around once more."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from pages._ui.guard import headers

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
main { max-width: 34rem; margin: 15vh auto 0; padding: 0 1rem }
form { display: flex; gap: .5rem; flex-wrap: wrap }
input[type=password] { flex: 1 1 16rem; font: inherit; padding: .4rem .6rem }
button { font: inherit; padding: .4rem 1.2rem; cursor: pointer }
code { overflow-wrap: anywhere }
"""
POLICY = (
    f"default-src 'none'; style-src {headers.hashed(_STYLE)}; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)


def page(query: Iterable[tuple[str, str]], where: str, wrong: bool) -> str:
    """HTML. The form leads to the same address; ``query`` is what it carries besides the token."""
    kept = "".join(f'<input type="hidden" name="{escape(n)}" value="{escape(v)}">' for n, v in query)
    mistake = '<p role="alert"><b>This is not the token of this server.</b></p>' if wrong else ""
    return _html(
        f"""<h1>FuseScope</h1>{mistake}
<p>This app needs its token. The command that started it printed an address that ends in
<code>?token=…</code>: open that address, or paste it or the token here.</p>
<form method="get"><label hidden for="token">token</label>
<input type="password" id="token" name="token" placeholder="token" aria-label="token" required autofocus
autocomplete="current-password">{kept}<button>Open</button></form>
<p>The token is also in <code>{escape(where)}</code> on the machine that runs the app.</p>"""
    )


def again() -> str:
    """HTML that opens the same address once more, now from a page of ours: a browser keeps the cookie back
    (SameSite=Strict) when a link of another site led here."""
    return _html("<p>Opening FuseScope…</p>", '<meta http-equiv="refresh" content="0">')


def _html(body: str, head: str = "") -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{head}<title>FuseScope</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>'
        f"<body><main>{body}</main></body></html>"
    )
