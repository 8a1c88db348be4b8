"""The little CSS beyond the theme: tighter margins so that 1024 pixels are enough, dots, and dimmed
answers."""

from __future__ import annotations

import streamlit as st

# Whole pixels for charts: plotly redraws one whose width is given in fractions after it measured hundredths.
# Rows of a slider and its box are 8 pixels too tall: a box that scrolls so little swallows the wheel.
# A grid's own CSV, made in the browser, has texts that a spreadsheet takes for formulas; ours is below it.
# A document's code wraps and is one colour: no key scrolls a code block of Streamlit's Markdown, and the
# colours of its comments and keywords are below AA contrast.
# What renews itself keeps its height (fs-slot): it never moves what is below it under a visitor's hand.
# Toasts are at the bottom: at the top they cover "Copy link".
# A list of a select box is as wide as names of operators and models are, where its box is narrower.
# A chart's buttons are under it, in the row of its CSV, where they cover no text; a mask has a margin.
_CSS = """
<style>
.stMainBlockContainer { padding: 2.2rem 1.6rem 3rem 1.6rem; max-width: 1720px; }
.stMainBlockContainer h1 { font-size: 1.7rem; padding: 0 0 .1rem 0; }
.stMainBlockContainer h3 { font-size: 1.15rem; }
section[data-testid="stSidebar"] { width: 212px !important; min-width: 212px; }
section[data-testid="stSidebar"][aria-expanded="false"] { min-width: 0; width: 0 !important; }
[data-testid="stSidebarContent"] { padding: 0 !important; }
[data-testid="stSidebarUserContent"] { padding: 0 1rem 2rem 1rem !important; }
div[data-testid="stSidebarHeader"] { height: 2.2rem; padding-bottom: 0; }
.fs-brand { font-weight: 700; font-size: 1.25rem; letter-spacing: -.01em; }
.fs-brand span { font-weight: 400; opacity: .75; font-size: .76rem; line-height: 1.3; display: block; }
[data-testid="stSelectboxVirtualDropdown"] { min-width: min(15.5rem, 92vw); }
.fs-dot { display: inline-block; width: .62rem; height: .62rem; border-radius: 50%; margin-right: .4rem; }
.fs-free { background: #2E9E6B; }
.fs-measuring { background: #3C8FCB; }
.fs-throttled { background: #D1495B; }
.fs-small { font-size: .84rem; line-height: 1.35; overflow-wrap: anywhere; }
.fs-muted { opacity: .78; }
.fs-line { font-family: monospace; font-size: .76rem; white-space: nowrap; overflow: hidden;
    text-overflow: ellipsis; }
[data-testid="stToastContainer"] { top: auto; bottom: 1rem; }
.fs-slot { height: 2.7em; overflow: hidden; }
.st-key-own .fs-slot { height: 1.35em; }
.fs-right { text-align: right; }
.fs-two { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2; overflow: hidden;
    overflow-wrap: anywhere; }
[data-testid="stSidebar"] hr { margin: .5rem 0; }
[data-testid="stSidebar"] [class*="st-key-job-"] { padding: .5rem .7rem; }
.fs-code { font-family: monospace; font-size: .84rem; white-space: pre-wrap; overflow-wrap: anywhere;
    user-select: all; margin: 0; padding: .6rem .8rem; border-radius: .5rem;
    background: rgba(128,128,128,.1); }
.fs-table { --paper: light-dark(#FFFFFF, #0F1319); overflow: auto; font-size: .86rem;
    border: 1px solid rgba(128,128,128,.35); border-radius: .5rem; scrollbar-width: thin;
    background: linear-gradient(to left, var(--paper) 1.6rem, transparent) right / 3rem 100% no-repeat local,
        linear-gradient(to left, rgba(128,128,128,.55), transparent) right / 1.4rem 100% no-repeat scroll; }
.fs-table table { border-collapse: collapse; width: 100%; }
.fs-table th { position: sticky; top: 0; font-weight: 600; text-align: left; vertical-align: bottom;
    background: light-dark(#E4E7EB, #333A45); }
.fs-table th, .fs-table td { padding: .28rem .6rem; border-bottom: 1px solid rgba(128,128,128,.22); }
.fs-table tr:last-child td { border-bottom: none; }
.fs-table td { white-space: nowrap; font-variant-numeric: tabular-nums; }
.fs-table abbr { opacity: .8; text-decoration: underline dotted; cursor: help; }
.fs-table .fs-lines { display: inline-block; min-width: 7.5rem; max-width: 27rem; white-space: normal; }
.fs-table .fs-long { display: -webkit-inline-box; -webkit-box-orient: vertical; -webkit-line-clamp: 3;
    min-width: 12rem; max-width: 27rem; overflow: hidden; white-space: normal; overflow-wrap: anywhere;
    vertical-align: bottom; }
.fs-table .fs-right, .fs-table th.fs-right { text-align: right; }
[data-testid="stMarkdownContainer"] pre, [data-testid="stMarkdownContainer"] pre * {
    white-space: pre-wrap !important; overflow-wrap: anywhere; }
[data-testid="stMarkdownContainer"] pre .token { color: inherit !important; }
.fs-small a, .fs-table a { color: inherit; }
.stSelectbox input { text-overflow: ellipsis; }
[class*="st-key-old_answer"], .st-key-previous_answer { opacity: .62; }
[data-testid="stFullScreenFrame"] { max-width: round(down, 100%, 1px); }
.st-key-models-view button { padding-inline: .62rem; }
.st-key-form { gap: .55rem; }
.stColumn:has(.st-key-form) { min-width: 300px; }
.st-key-form .stColumn { min-width: 0 !important; }
.stColumn:has(.st-key-result) { min-width: 0; }
.st-key-form .stCaption p { line-height: 1.3; }
[data-testid="stSliderThumbValue"], button[data-variant="pills"],
button[data-variant="segmented_control"][aria-checked="true"] { color: inherit !important; }
[data-testid="stCaptionContainer"] { opacity: 1; color: color-mix(in srgb, currentColor 74%, transparent); }
[data-testid="stElementToolbarButton"]:has(button[aria-label^="Download as CSV"]) { display: none; }
kbd { color: inherit !important; opacity: 1 !important; }
.stElementContainer:has(.js-plotly-plot), .js-plotly-plot { overflow: visible !important; }
.js-plotly-plot .modebar-container { top: 100% !important; }
.js-plotly-plot .modebar { left: 0 !important; right: auto !important; width: max-content; }
[class*="st-key-masks-picture"] { margin-bottom: 1.2rem; }
.stMain .stHorizontalBlock { overflow: visible !important; }
.st-key-families { display: grid !important; gap: .8rem; align-items: start;
    grid-template-columns: repeat(auto-fill, minmax(200px, 1fr)); }
[class*="st-key-wide-chart"] { overflow-x: auto; padding-bottom: 2.4rem; margin-bottom: -2.4rem;
    animation: fs-more linear; animation-timeline: scroll(self x); }
@keyframes fs-more {  /* only where it scrolls: its edge fades until its end is in sight */
    0%, 97% { mask-image: linear-gradient(to left, rgba(0,0,0,.25), #000 2.5rem); }
    100% { mask-image: none; }
}
[class*="st-key-wide-chart"] > :has([data-testid="stPlotlyChart"]),
[class*="st-key-wide-chart"] [data-testid="stFullScreenFrame"] { min-width: 760px;
    max-width: max(760px, round(down, 100%, 1px)); }
.fs-settings summary { cursor: pointer; font-weight: 600; padding: .5rem .8rem; border-radius: .5rem;
    border: 1px solid rgba(128,128,128,.35); }
.stElementContainer[class*="-case-"] { min-width: min(100%, 19rem); }
@media (min-width: 641px) { .stElementContainer:has(.fs-settings) { display: none; } }
@media (max-width: 1200px) {
    .stHorizontalBlock:has(> .stColumn [class*="st-key-wide-chart"]) { flex-wrap: wrap; }
    .stColumn:has([class*="st-key-wide-chart"]),
    .stColumn:has([class*="st-key-wide-chart"]) ~ .stColumn { min-width: 100%; }
}
@media (max-width: 640px) {
    .st-key-own .fs-slot { height: 2.7em; }
    .stMainBlockContainer { padding: 3.6rem 1rem 3rem 1rem; }
    .stHorizontalBlock:has(> .stColumn .st-key-form) { flex-wrap: wrap; }
    .stColumn:has(.st-key-form), .stColumn:has(.st-key-result) { min-width: 100%; }
    .fs-table th, .fs-table td { padding: .28rem .42rem; }
    [data-testid="stMarkdownContainer"] table { display: block; overflow-x: auto; }
    .st-key-filters .stColumn { min-width: calc(50% - 1rem); }
    .stColumn:has(> .stVerticalBlock > .stElementContainer > .stMetric:only-child) {
        min-width: calc(50% - 1rem); }
    .stMain:has(.fs-settings:not([open])) .stColumn:has(.st-key-form) { display: none; }
}
</style>
"""


_POPOVERS = '<style>[data-testid="stPopoverBody"] {{ color-scheme: {} }}</style>'
"""They lie outside the element that has the page's colour scheme, for which tables ask."""


def apply() -> None:
    """Put the style into the page; once a run, by the frame."""
    st.html(_CSS)
    st.html(_POPOVERS.format(theme()))


def theme() -> str:
    """ "light" or "dark": what the viewer's page shows now."""
    return "dark" if st.context.theme.type == "dark" else "light"


def dot(state: str, text: str) -> str:
    """A coloured dot with a text (never colour alone) as HTML; state: free, measuring or throttled."""
    return f'<span class="fs-dot fs-{state}"></span>{text}'
