// Pages work without this file. It shows times in the reader's zone, keeps pages up to date, and adds keys and charts.
"use strict";

// The Swedish form is the one of ISO 8601, which everyone can read.
const SHOWN_TIME = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium" });
const SHOWN_MINUTE = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "short" });
const ZONE = new Intl.DateTimeFormat("en", { timeZoneName: "shortOffset" });
const AGO = new Intl.RelativeTimeFormat("en", { numeric: "always", style: "short" });
const DAY_S = 86400;
const RELATIVE_EVERY_MS = 30000;
const LEAST_MS_BETWEEN_UPDATES = 500;
const KEY_PAUSE_MS = 1500;

// How long ago a time of the last day was, or how soon one of the next is; others by their date.
function relative(date) {
  const seconds = (date - Date.now()) / 1000, size = Math.abs(seconds);
  if (size >= DAY_S) return SHOWN_MINUTE.format(date);
  if (size < 60) return seconds > 0 ? "in a minute" : "just now";
  return size < 3600 ? AGO.format(Math.trunc(seconds / 60), "minute") : AGO.format(Math.trunc(seconds / 3600), "hour");
}

function showLocalTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const date = new Date(time.dateTime), exact = SHOWN_TIME.format(date);
    time.textContent = "exact" in time.dataset ? exact : relative(date);
    time.dataset.utc ??= time.title;
    time.title = `${exact} ${zoneAt(date)}, ${time.dataset.utc}`;
  }
  const zone = document.getElementById("zone");
  if (zone) zone.textContent = `Times are in ${Intl.DateTimeFormat().resolvedOptions().timeZone} (${zoneAt(new Date())}).`;
}

function zoneAt(date) {
  return ZONE.formatToParts(date).find((part) => part.type === "timeZoneName").value;
}

function enableCopying(root) {
  for (const button of root.querySelectorAll("button.copy[hidden]")) {
    button.hidden = !navigator.clipboard;
  }
}

// What is cut off can be scrolled with the keyboard.
function makeScrollable(root) {
  for (const part of root.querySelectorAll("pre, .scroll, .tabs")) {
    if (part.scrollHeight > part.clientHeight + 1 || part.scrollWidth > part.clientWidth + 1) part.tabIndex = 0;
  }
}

// On a phone, rows of tables are shown one cell below the other, each after the name of its column. The roles say that
// they are tables nevertheless.
function nameCells(root) {
  for (const table of root.querySelectorAll("table:not(.columns-diff)")) {
    const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
    table.classList.add("named");
    table.setAttribute("role", "table");
    for (const part of [table.tHead, ...table.tBodies]) part.setAttribute("role", "rowgroup");
    for (const row of table.rows) {
      row.setAttribute("role", "row");
      for (const cell of row.cells) {
        cell.setAttribute("role", cell.scope === "col" ? "columnheader" : cell.scope === "row" ? "rowheader" : "cell");
        if (row.parentNode === table.tHead) continue;
        if (names[cell.cellIndex]) cell.dataset.name = names[cell.cellIndex];
        if (!cell.textContent.trim() && !cell.querySelector("svg, progress, form")) cell.dataset.blank = "";
      }
    }
  }
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  if (!button) return;
  const source = document.getElementById(button.dataset.copyFrom ?? "");
  await navigator.clipboard.writeText(source ? source.textContent : button.dataset.copy);
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, KEY_PAUSE_MS);
});

// Many events become one update: the part of the page that is live is fetched again and its changes are merged in.
function followEvents(live) {
  const session = live.dataset.session;
  const events = new EventSource("/console/events" + (session ? "?session_id=" + encodeURIComponent(session) : ""));
  let waiting = false, last = 0;
  const update = async () => {
    last = Date.now();
    waiting = false;
    if (live.contains(document.activeElement) && document.activeElement.matches("input, textarea, select")) return;
    await htmx.ajax("GET", location.href, { target: "#live", select: "#live", swap: "outerMorph" });
    makeScrollable(document.getElementById("live"));
  };
  const changed = () => {
    if (waiting) return;
    waiting = true;
    setTimeout(update, Math.max(0, LEAST_MS_BETWEEN_UPDATES - (Date.now() - last)));
  };
  events.onmessage = changed;
  // A refused stream is not opened again. If the reason is that the sign-in ended, the page leads to the next one.
  events.onerror = async () => {
    if (events.readyState !== EventSource.CLOSED) return;
    const answer = await fetch(location.href, { headers: { "hx-request": "true" } });
    if (answer.status === 401) location.reload();
  };
  window.addEventListener("pagehide", () => events.close());
}

// The new part is prepared before it is merged in, so that nothing moves twice.
document.addEventListener("htmx:before:swap", (event) => {
  const status = event.detail.ctx.response.status;
  if (status >= 400) {
    // What is shown stays. Who is no longer signed in is asked to sign in, and returns to this page.
    event.preventDefault();
    if (status === 401) location.reload();
    return;
  }
  for (const { fragment } of event.detail.tasks) {
    showLocalTimes(fragment);
    enableCopying(fragment);
    nameCells(fragment);
  }
});

let pressed = "";
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, textarea, select")) return;
  if (event.key === "/") {
    event.preventDefault();
    document.getElementById("find")?.focus();
  } else if (event.key === "?") {
    document.getElementById("keys")?.showModal();
  } else if (pressed === "g") {
    document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`)?.click();
    pressed = "";
  } else {
    pressed = event.key;
    setTimeout(() => { pressed = ""; }, KEY_PAUSE_MS);
  }
});

// A chart draws what its table says: tokens of each row that were sent, and of the conversations alone.
function drawChart(place) {
  const rows = [...document.querySelectorAll(`#${place.dataset.chart} tbody tr`)];
  if (rows.length < 2 || typeof uPlot === "undefined") return;
  // A time without calls is a gap.
  const numbers = (column) => rows.map((row) => row.cells[column].dataset.value === "" ? null : Number(row.cells[column].dataset.value));
  const names = rows.map((row) => row.cells[0].textContent);
  const colour = (name) => {
    const probe = place.appendChild(document.createElement("i"));
    probe.className = name;
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };
  const axis = { stroke: getComputedStyle(document.body).color, grid: { stroke: colour("grid"), width: 1 }, ticks: { stroke: colour("grid"), width: 1 } };
  new uPlot({
    width: place.clientWidth, height: 240, padding: [null, 60, null, null], legend: { live: false }, scales: { x: { time: false } },
    series: [
      { label: "row", value: (_, index) => names[index] ?? "" },
      { label: "sent", stroke: colour("assembled"), width: 2, points: { show: rows.length < 32 } },
      { label: "conversation alone", stroke: colour("naive"), width: 2, dash: [6, 4], points: { show: rows.length < 32 } },
    ],
    axes: [{ ...axis, splits: () => rows.map((_, index) => index).filter((index) => index % Math.ceil(rows.length / (place.clientWidth / 110)) === 0), values: (_, at) => at.map((index) => names[index] ?? "") }, { ...axis, size: 80 }],
  }, [rows.map((_, index) => index), numbers(2), numbers(3)], place);
}

// A link that signs in has its token behind the #, which browsers do not send. It leaves the address and the history.
function offerLink() {
  const form = document.getElementById("by-link");
  const token = location.hash.slice(1);
  const claims = token.split(".")[1];
  if (!form || !claims) return;
  history.replaceState(null, "", location.pathname + location.search);
  form.elements.api_key.value = token;
  try {
    form.querySelector("strong").textContent = JSON.parse(atob(claims.replaceAll("-", "+").replaceAll("_", "/"))).sub;
  } catch {
    return;
  }
  document.getElementById("by-key").hidden = true;
  form.hidden = false;
  form.querySelector("button").focus();
}
window.addEventListener("hashchange", offerLink);

document.addEventListener("DOMContentLoaded", () => {
  offerLink();
  showLocalTimes(document);
  enableCopying(document);
  nameCells(document);
  makeScrollable(document);
  setInterval(() => showLocalTimes(document), RELATIVE_EVERY_MS);
  window.addEventListener("resize", () => makeScrollable(document));
  // On a phone, the tab of this page may be beyond the edge.
  const tab = document.querySelector(".tabs a[aria-current]");
  if (tab) tab.closest(".tabs").scrollLeft = tab.offsetLeft - 40;
  const live = document.getElementById("live");
  if (live) followEvents(live);
  document.querySelectorAll("[data-chart]").forEach(drawChart);
});
