// The style sheet and the script of the page of `ddprun report` (page.hpp).
#pragma once

namespace ddprun {

// The colours are CSS variables, which have other values in dark mode. Each row contains as many charts as fit.
inline constexpr const char* kPageStyle = R"(
:root { color-scheme: light dark; --line: #8886; --axis: #777; --good: #17784a; --bad: #b3301c; --kept: #8a5a00; --ink: #0072b2;
  --round: #7a8ea3; }
@media (prefers-color-scheme: dark) { :root { --axis: #999; --good: #6fd09b; --bad: #ff8f73; --kept: #f0b040; --ink: #62bdf0;
  --round: #8499b0; } }
* { box-sizing: border-box; }
body { font: 16px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.4rem; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .15rem .8rem .15rem 0; vertical-align: top; }
td { overflow-wrap: anywhere; } .wide { overflow-x: auto; } .wide td { white-space: nowrap; } .wide th { vertical-align: bottom; }
.wide td:last-child { white-space: normal; min-width: 11rem; }
svg text { font: 12px system-ui, sans-serif; fill: currentColor; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr)); gap: 1.5rem; margin: 1rem 0; }
.chart > svg { width: 100%; height: auto; display: block; }
.grid { stroke: var(--line); stroke-width: .5; } .axis { stroke: var(--axis); }
.curve { fill: none; stroke: var(--ink); stroke-width: 1.5; }
.failure { fill: var(--bad); } .failure.kept { fill: var(--kept); } .resumed { fill: none; stroke: var(--bad); }
.round { fill: var(--round); stroke: Canvas; }
.timeline { width: 100%; height: 54px; display: block; overflow: visible; } .at { overflow: visible; }
.timebar { width: 100%; height: 18px; display: block; }
.part-0, .part-6 { fill: #0072b2; } .part-1 { fill: #009e73; } .part-2 { fill: #cc79a7; } .part-3 { fill: #e69f00; }
.part-4 { fill: #d55e00; } .part-5 { fill: #888; } .part-7 { fill: #555; }
.legend { font-size: .85rem; margin: .3rem 0; } .legend span { margin-right: 1rem; display: inline-block; }
.key { width: 12px; height: 11px; margin-right: .35rem; vertical-align: -1px; }
progress { width: 100%; accent-color: var(--ink); }
details { border-left: 3px solid var(--line); padding: .3rem 0 .3rem .8rem; margin: .4rem 0; }
details.failed { border-color: var(--bad); } summary { cursor: pointer; overflow-wrap: anywhere; }
pre { overflow-x: auto; font-size: .8rem; padding: .5rem; border: 1px solid var(--line); }
.end { font-size: 1.1rem; margin: .3rem 0; } .progress { margin: .3rem 0; } .bad { color: var(--bad); overflow-wrap: anywhere; }
.good { color: var(--good); } .small { font-size: .85rem; opacity: .8; }
)";

// When the page reloads itself, it keeps its scroll position, and expanded blocks stay expanded. The script stores both in the
// sessionStorage of the browser tab, with the path of the page in the key. If a browser has no sessionStorage, both are lost
// at each reload.
inline constexpr const char* kPageScript = R"(
const key = "ddprun " + location.pathname;
const blocks = () => [...document.querySelectorAll("details[id]")];
addEventListener("pagehide", () => {
  try {
    sessionStorage.setItem(key, JSON.stringify({x: scrollX, y: scrollY, open: blocks().filter(b => b.open).map(b => b.id)}));
  } catch {}
});
try {
  const kept = JSON.parse(sessionStorage.getItem(key));
  for (const b of blocks()) b.open = kept.open.includes(b.id);
  scrollTo(kept.x, kept.y);
} catch {}
)";

// The digest of the script. With it, the page's security policy lets a browser run this script and no other one.
inline constexpr const char* kPageScriptDigest = "sha256-ld8klqF58l4E2thlULVDL6KkPVjW+zi/HVPHTEfV+YM=";

}  // namespace ddprun
