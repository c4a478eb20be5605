"use strict";
// The token stays in this page's memory: it is neither stored nor put into an address.

const PAGE = 100;
const HASH_PAGE = 10000;
const at = (id) => document.getElementById(id);
let shown = null;

function lines(id) {
  return at(id).value.split("\n").map((line) => line.trim()).filter((line) => line);
}

function descriptor() {
  const mode = at("mode").value;
  const query = {
    version: 1,
    scope: lines("scope"),
    filter: {
      subject_id: at("subject").value.trim() || null,
      event_type: lines("types").length ? lines("types") : null,
      time: { from: at("from").value.trim() || null, to: at("to").value.trim() || null },
    },
    projection: lines("projection"),
    evidence: mode === "spot" ? { mode, sample_rate: Number(at("rate").value) } : { mode },
  };
  const reason = at("reason").value.trim();
  return reason ? { ...query, meta: { reason } } : query;
}

async function ask(path, options = {}) {
  const headers = { Authorization: `Bearer ${at("token").value}`, ...options.headers };
  const reply = await fetch(path, { ...options, headers, cache: "no-store" });
  if (reply.ok) return reply;
  let message = `HTTP ${reply.status}`;
  try {
    const error = await reply.json();
    message = `${error.error_code}: ${error.message}`;
  } catch { /* no JSON: the status says it */ }
  throw new Error(message);
}

function say(text, kind) {
  at("state").textContent = text;
  at("state").className = kind || "";
}

async function submit(event) {
  event.preventDefault();
  at("result").hidden = true;
  say("Submitting");
  try {
    const reply = await ask("api/v1/query/submit", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(descriptor()),
    });
    const answer = await reply.json();
    const names = answer.result_digest || answer;
    await completed(names.result_id);
    await show(names.result_id, 0);
    await verify(names.result_id);
  } catch (error) {
    say(error.message, "bad");
  }
}

async function completed(resultId) {
  for (let pause = 200; ; pause = Math.min(2 * pause, 5000)) {
    const state = await (await ask(`api/v1/query/status/${resultId}`)).json();
    if (state.status === "completed") return;
    if (state.status === "failed") throw new Error(`${state.error_code}: ${state.message}`);
    say(`The query is ${state.status}`);
    await new Promise((done) => setTimeout(done, pause));
  }
}

async function show(resultId, offset) {
  const reply = await ask(`api/v1/query/result/${resultId}?offset=${offset}&limit=${PAGE}`);
  const answer = await reply.json();
  shown = { resultId, page: answer.page };
  showDigest(answer);
  at("coverage").textContent = coverage(answer.result_digest.evidence_policy.mode);
  showRows(answer.rows);
  const last = answer.page.offset + answer.rows.length;
  at("place").textContent = `${answer.rows.length ? answer.page.offset + 1 : 0} to ${last} of ${answer.page.total}`;
  at("earlier").disabled = answer.page.offset === 0;
  at("later").disabled = !answer.page.has_more;
  at("result").hidden = false;
}

function showDigest(answer) {
  const digest = answer.result_digest;
  const searched = digest.searched.map((range) => `${range.stream} ${range.from_seq}-${range.to_seq}`);
  const facts = {
    query_id: digest.query_id,
    result_id: digest.result_id,
    "rows": digest.row_count,
    rows_hash: digest.rows_hash,
    evidence: JSON.stringify(digest.evidence_policy),
    evidence_hash: digest.evidence_hash,
    "up to": `${digest.checkpoint.created_at}, checkpoint ${digest.checkpoint.checkpoint_id}`,
    searched: searched.join(", "),
    hub_id: digest.hub_id,
    "recorded as": `${answer.record_event.stream} ${answer.record_event.seq}, ${answer.record_event.receipt_id}`,
  };
  at("digest").replaceChildren(...Object.entries(facts).flatMap(([name, value]) => {
    const term = document.createElement("dt");
    const fact = document.createElement("dd");
    term.textContent = name;
    fact.textContent = value;
    return [term, fact];
  }));
}

// What the package of each evidence mode can prove at best, as veen query verify would say it.
function coverage(mode) {
  if (mode === "full") {
    return "Evidence full: the package can prove each row. It proves that no matching row is missing only if every searched event is a row; otherwise run veen query replay.";
  }
  const rows = mode === "spot" ? "the rows that were not sampled are" : "all rows are";
  return `Evidence ${mode}: ${rows} only claimed by the service, and the package stays unproven. Only veen query replay shows whether a matching row is missing.`;
}

function showRows(rows) {
  // Imported events have fields of their origin that local ones have not.
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const cells = (values, kind) => {
    const row = document.createElement("tr");
    row.replaceChildren(...values.map((value) => {
      const cell = document.createElement(kind);
      cell.textContent = typeof value === "string" ? value : JSON.stringify(value);
      return cell;
    }));
    return row;
  };
  const body = rows.map((row) => cells(names.map((name) => row[name] ?? null), "td"));
  at("rows").replaceChildren(cells(names, "th"), ...body);
}

// The rows come last in an answer, in canonical JSON, so their bytes are the hashed bytes.
function rowsIn(text) {
  const mark = ',"rows":[';
  return text.slice(text.indexOf(mark) + mark.length, text.length - 2);
}

async function verify(resultId) {
  if (!crypto.subtle) {
    say("Unproven: only claimed by the service. This page hashes rows only over https or on localhost.", "open");
    return;
  }
  const parts = [];
  let digest = null;
  for (let offset = 0, more = true; more; ) {
    const reply = await ask(`api/v1/query/result/${resultId}?offset=${offset}&limit=${HASH_PAGE}`);
    const text = await reply.text();
    const answer = JSON.parse(text);
    digest = answer.result_digest;
    if (answer.rows.length) parts.push(rowsIn(text));
    offset += answer.rows.length;
    more = answer.page.has_more;
  }
  const bytes = new TextEncoder().encode(`[${parts.join(",")}]`);
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  const hex = Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
  if (hex === digest.rows_hash) {
    say("Unproven: the rows match the digest, which is only claimed by the service until veen query verify reports the package as proven.", "open");
  } else {
    say("Failed: the rows do not match the digest.", "bad");
  }
}

async function savePackage() {
  try {
    const blob = await (await ask(`api/v1/query/proof/${shown.resultId}`)).blob();
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `${shown.resultId}.veenproof`;
    link.click();
    URL.revokeObjectURL(link.href);
  } catch (error) {
    say(error.message, "bad");
  }
}

function turn(step) {
  const offset = Math.max(0, shown.page.offset + step * PAGE);
  show(shown.resultId, offset).catch((error) => say(error.message, "bad"));
}

at("form").addEventListener("submit", submit);
at("package").addEventListener("click", savePackage);
at("earlier").addEventListener("click", () => turn(-1));
at("later").addEventListener("click", () => turn(1));
