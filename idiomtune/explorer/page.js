"use strict";
// The data are in the page; what is asked is answered by the server that it came from, or is in the data too.
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const last = data.models.length - 1;
// Two models of which one became the other.
const step = last !== 1 ? "" : data.models[0].name.startsWith("untrained: ") ? "training" : "";
const by = (m) => (step ? `${["before", "after"][m]} ${step}` : `by ${data.models[m].name}`);
const MODE_NAMES = { sentence: "the whole sentence", span: "the marked words" };
let mode = "sentence";
let only = last; // the model that a phone shows
let current = null; // what is shown: {query} of the corpus, or a sentence with {words, start}
let marked = { words: "", start: null }; // what was selected last
let numAsked = 0; // answers to earlier questions are thrown away

function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// Offsets count characters as Python does, not the halves of those that JavaScript stores in two.
function withSpan(text, span) {
  if (!span) return [text];
  const characters = Array.from(text);
  const part = (start, end) => characters.slice(start, end).join("");
  return [part(0, span[0]), element("mark", "marked", part(span[0], span[1])), part(span[1])];
}

function colour(usage) {
  if (["idiomatic", "literal", "simplification", "sense"].includes(usage)) return `var(--u-${usage})`;
  const place = data.usages.indexOf(usage);
  return place < 0 || place > 3 ? "var(--u-other)" : `var(--u-${place})`;
}

function tag(usage) {
  if (!usage) return null;
  const made = element("span", "tag", usage);
  made.style.background = colour(usage);
  return made;
}

const percent = (value) => (100 * value).toFixed(0);

// ------------------------------------------------------------------ the corpus' queries

function scoresOf(number) {
  return data.scores ? (data.scores[mode] || data.scores.sentence)[number] : null;
}

function meanScores(numbers) {
  return data.models.map((_, m) => numbers.reduce((sum, n) => sum + scoresOf(n)[m], 0) / numbers.length);
}

function scoreText(scores) {
  if (!scores) return null;
  const made = element("span", "score");
  if (scores.length > 2) {
    made.append(scores.map(percent).join(" · "));
    return made;
  }
  const change = Number(percent(scores[last])) - Number(percent(scores[0]));
  const verdict = change > 0 ? "better" : change < 0 ? "worse" : "";
  made.append(scores.length > 1 ? `${percent(scores[0])} → ` : "", element("span", verdict, percent(scores[last])));
  return made;
}

function orders() {
  if (!data.scores) return [];
  const found = data.models.map((_, m) => [`worst first, ${by(m)}`, (scores) => scores[m]]).reverse();
  if (last > 0) {
    const change = step || "the last model beside the first";
    found.push([`lost most by ${change}`, (scores) => scores[last] - scores[0]]);
    found.push([`gained most by ${change}`, (scores) => scores[0] - scores[last]]);
  }
  return found;
}

function listQueries() {
  const wanted = byId("filter").value.trim().toLowerCase();
  const order = orders()[byId("order").selectedIndex];
  const groups = new Map();
  data.queries.forEach((query, number) => {
    const all = `${query.text} ${query.group || ""} ${query.usage || ""}`.toLowerCase();
    if (!all.includes(wanted)) return;
    const group = query.group || "";
    groups.set(group, [...(groups.get(group) || []), number]);
  });
  byId("list-title").textContent = order ? `Queries, ${order[0]}` : "Queries";
  let sorted = [...groups];
  if (order) {
    const of = (number) => order[1](scoresOf(number));
    sorted.forEach(([, numbers]) => numbers.sort((a, b) => of(a) - of(b)));
    sorted = sorted
      .map(([group, numbers]) => [group, numbers, order[1](meanScores(numbers))])
      .sort((a, b) => a[2] - b[2]);
  }
  const shown = sorted.flatMap(([group, numbers]) => [
    group ? element("div", "group", group, data.scores ? scoreText(meanScores(numbers)) : null) : null,
    ...numbers.map(queryButton),
  ]);
  byId("queries").replaceChildren(...shown.filter(Boolean));
  if (!shown.length) byId("queries").append(element("p", "small", "None of the queries has these words."));
}

function queryButton(number) {
  const query = data.queries[number];
  const made = element("button", "query", scoreText(scoresOf(number)), tag(query.usage), " ", ...withSpan(query.text, query.span));
  made.type = "button";
  made.dataset.number = number;
  made.setAttribute("aria-current", String(current !== null && current.query === number));
  made.addEventListener("click", () => {
    choose(number);
    if (matchMedia("(max-width: 56rem)").matches) {
      byId("list").open = false;
      byId("main").focus({ preventScroll: true });
      byId("asked").scrollIntoView();
    }
  });
  return made;
}

// ------------------------------------------------------------------ asking

async function post(path, body) {
  const reply = await fetch(path, { method: "POST", body: JSON.stringify(body) }).catch(() => {
    throw new Error("The program behind this page has ended."); // each browser has words of its own for it
  });
  const answer = await reply.json();
  if (!reply.ok) throw new Error(answer.error);
  return answer;
}

const asking = () => ({ text: current.text, words: current.words, start: current.start, query: current.query, mode });

async function answerOf() {
  if (!data.live) return data.answers[mode][current.query];
  const answer = await post("search", asking());
  Object.assign(data.documents, answer.documents);
  return answer;
}

async function reasonFor(model, row) {
  if (data.live) return post("why", { ...asking(), model, document: row.document });
  return { words: data.words[model][row.document], shares: row.shares };
}

function choose(number) {
  const query = data.queries[number];
  const characters = Array.from(query.text);
  const [start, end] = query.span || [null, null];
  const words = query.span ? characters.slice(start, end).join("") : "";
  current = { query: number, text: query.text, words, start, span: query.span, usage: query.usage, group: query.group };
  byId("text").value = query.text;
  byId("words").value = words;
  if (!query.span) mode = "sentence";
  return show();
}

// The address opens the same query again: #q=<sentence>&words=<marked>&by=span. A page inside another has none of its own.
function setAddress() {
  if (!/^(https?|file):$/.test(location.protocol)) return;
  const facts = { q: current.text, ...(current.words && { words: current.words }), ...(mode === "span" && { by: mode }) };
  history.replaceState(null, "", `#${new URLSearchParams(facts)}`);
}

// What the address names, if it names anything; whether it did.
function openAddress() {
  const facts = new URLSearchParams(location.hash ? location.hash.slice(1) : location.search);
  const text = facts.get("q");
  if (!text) return false;
  const words = facts.get("words") || "";
  mode = facts.get("by") === "span" ? "span" : "sentence";
  const isIt = (query) => query.text === text && (!words || !query.span || withSpan(query.text, query.span)[1].textContent === words);
  const number = data.queries.findIndex(isIt);
  if (number >= 0) choose(number);
  else if (data.live) {
    current = { query: null, text, words, start: null };
    byId("text").value = text;
    byId("words").value = words;
    if (!words) mode = "sentence";
    show();
  } else {
    mode = "sentence";
    byId("offline").prepend(`The address asks for “${text}”, which is not among them. `);
    return false;
  }
  return true;
}

async function show() {
  const number = ++numAsked;
  for (const button of byId("queries").querySelectorAll("button"))
    button.setAttribute("aria-current", String(Number(button.dataset.number) === current.query));
  byId("columns").setAttribute("aria-busy", "true");
  try {
    const answer = await answerOf();
    if (number !== numAsked) return;
    byId("asked").replaceChildren(asked());
    byId("columns").replaceChildren(...answer.models.map((one, m) => column(one, m, answer.num_relevant)));
    byId("switch").replaceChildren(...(last > 0 ? [element("legend", "unseen", "Model"), ...answer.models.map((one, m) => switchTo(one, m, answer.num_relevant))] : []));
    byId("status").textContent = answer.models.map(({ rows }, m) => `${data.models[m].name}: ${foundText(rows, answer.num_relevant) || `${rows.length} texts`}`).join("; ");
    setAddress();
  } catch (error) {
    if (number !== numAsked) return;
    byId("asked").replaceChildren(element("p", "error", error.message));
    byId("columns").replaceChildren();
  }
  byId("columns").removeAttribute("aria-busy");
}

function asked() {
  const span = current.span || spanOf(current);
  const made = element("div", "asked");
  made.append(element("p", "", tag(current.usage), current.usage ? " " : "", element("q", "", ...withSpan(current.text, span))));
  if (current.group) made.append(element("p", "small", `about “${current.group}”`));
  if (current.words && (data.live || data.modes.length > 1)) {
    const choice = element("fieldset", "", element("legend", "", "Search by"));
    for (const name of ["sentence", "span"]) {
      const input = element("input");
      Object.assign(input, { type: "radio", name: "mode", value: name, checked: mode === name });
      input.addEventListener("change", () => {
        mode = name;
        listQueries();
        show().then(() => document.querySelector(`input[name=mode][value=${name}]`)?.focus());
      });
      choice.append(element("label", "", input, MODE_NAMES[name]));
    }
    made.append(choice);
  }
  return made;
}

function spanOf({ text, words, start }) {
  if (!words) return null;
  const characters = Array.from(text);
  const length = Array.from(words).length;
  if (start !== null && characters.slice(start, start + length).join("") === words) return [start, start + length];
  const at = text.indexOf(words);
  const first = Array.from(text.slice(0, Math.max(at, 0))).length;
  return at < 0 ? null : [first, first + length];
}

// ------------------------------------------------------------------ the answer

function foundText(rows, total) {
  return total ? `${rows.filter((row) => row.relevant).length} of ${total} found` : "";
}

// On a phone one model is shown at a time.
function switchTo({ rows }, model, total) {
  const input = element("input");
  Object.assign(input, { type: "radio", name: "model", checked: model === only });
  input.addEventListener("change", () => {
    only = model;
    [...byId("columns").children].forEach((shown, m) => shown.classList.toggle("other", m !== only));
  });
  const { name } = data.models[model];
  return element("label", "", input, name, element("br"), element("b", "", foundText(rows, total)));
}

function column(answer, model, total) {
  const { name, about } = data.models[model];
  const heading = element("header", "", element("h2", "", name));
  heading.title = about;
  const scores = current.query === null ? null : scoresOf(current.query);
  const found = foundText(answer.rows, total);
  if (found) heading.append(element("div", "found", element("b", "", found), ` among the first ${answer.rows.length}`, element("span", "small score", scores ? `; nDCG@10 ${percent(scores[model])}` : "")));
  if (answer.read) {
    const read = answer.read.map(([text, isAdded]) => (isAdded ? element("span", "added", text) : text));
    heading.append(element("div", "small", "read as: ", ...read));
  }
  heading.append(...kinds(answer.rows));
  return element("section", model === only ? "column" : "column other", heading, element("ol", "", ...answer.rows.map((row, place) => neighbour(row, place, model))));
}

// Which usages stand among the documents that are shown; of other idioms than the query's in grey.
function kinds(rows) {
  const counts = new Map();
  for (const row of rows) {
    const { usage, group } = data.documents[row.document];
    const isOther = current.group && group && group !== current.group;
    const kind = isOther ? "other idiom" : usage;
    if (kind) counts.set(kind, (counts.get(kind) || 0) + 1);
  }
  if (!counts.size) return [];
  const names = [...data.usages, "other idiom"].filter((kind) => counts.has(kind));
  const bar = element("div", "shares");
  for (const kind of names) {
    const part = element("span");
    part.style.flexGrow = counts.get(kind);
    part.style.background = colour(kind);
    bar.append(part);
  }
  bar.setAttribute("aria-hidden", "true");
  return [bar, element("div", "small", names.map((kind) => `${counts.get(kind)} ${kind}`).join(", "))];
}

function neighbour(row, place, model) {
  const { text, span, usage, group } = data.documents[row.document];
  const elsewhere = row.ranks.flatMap((rank, m) => (m === model ? [] : [" · ", moved(row, model, m)]));
  const isOther = current.group && group && group !== current.group;
  const facts = element("span", "rank", ` ${place + 1}. cosine ${row.cosine.toFixed(3)}`, ...elsewhere, " ");
  const about = group && (isOther || !current.group) ? element("span", "small", ` of “${group}” `) : null;
  const kind = tag(usage);
  if (kind && isOther) kind.style.background = "var(--u-other)";
  const summary = element("summary", "", verdict(row.relevant), facts, kind, about, element("br"), ...withSpan(text, span), " ");
  const why = element("div", "why");
  const made = element("details", "", summary, why);
  made.addEventListener("toggle", async () => {
    if (!made.open || why.childNodes.length) return;
    try {
      why.replaceChildren(...explained(await reasonFor(model, row), row, model));
    } catch (error) {
      why.replaceChildren(element("p", "error", error.message));
    }
  });
  return element("li", "", made);
}

function verdict(isRelevant) {
  if (isRelevant === undefined) return null;
  const words = element("span", "unseen", isRelevant ? "relevant" : "not relevant");
  return element("span", `mark ${isRelevant ? "yes" : "no"}`, isRelevant ? "✓" : "✗", words);
}

// The rank by another model, and where the document went between the two: from the earlier to the later one.
function moved({ ranks, relevant }, model, other) {
  const change = (ranks[other] - ranks[model]) * (other < model ? 1 : -1);
  const name = relevant ? (change > 0 ? "better" : "worse") : "";
  const text = `${ranks[other]}. ${step ? ["before", "after"][other] : by(other)}`;
  if (change === 0) return element("span", "", `= ${text}`);
  return element("span", name, change > 0 ? "▲" : "▼", element("span", "unseen", change > 0 ? "risen, " : "fallen, "), ` ${text}`);
}

function explained({ words, shares }, row, model) {
  const greatest = Math.max(...shares.slice(0, -1).map(Math.abs), 1e-6);
  const shown = words.map((word, i) => {
    const made = element("span", `word ${shares[i] < 0 ? "minus" : "plus"}`, word);
    made.style.setProperty("--w", Math.abs(shares[i]) / greatest);
    made.title = signed(shares[i]);
    return made;
  });
  const order = words.map((_, i) => i).filter((i) => words[i].trim()).sort((a, b) => Math.abs(shares[b]) - Math.abs(shares[a]));
  const most = order.slice(0, 4).map((i) => `${words[i].trim()} ${signed(shares[i])}`).join(", ");
  const rest = shares[shares.length - 1];
  const how = data.models[model].exact
    ? `The shares add up to the cosine, ${row.cosine.toFixed(3)}${Math.abs(rest) > 0.0005 ? `; tokens of no word (such as [CLS]): ${signed(rest)}` : ""}.`
    : "How much the cosine falls when the word is left out.";
  return [element("div", "", ...shown), element("div", "small", `Most: ${most}. ${how}`)];
}

const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`;

// ------------------------------------------------------------------ the start

byId("about").textContent = `${data.corpus.size.toLocaleString("en")} documents of ${data.corpus.name}; ${data.models.map((m) => m.name).join(" beside ")}. Scores are nDCG@10 in percent.`;
if (!data.scores) byId("about").textContent = byId("about").textContent.replace(" Scores are nDCG@10 in percent.", "");
const groups = data.queries.some((query) => query.group);
const kindsShown = data.usages.filter((kind) => colour(kind) !== "var(--u-other)");
byId("legend").append(...[...kindsShown, ...(groups && kindsShown.length ? ["other idiom"] : [])].map(tag));
if (data.scores) byId("legend").append(element("span", "", verdict(true), " relevant to the query"), element("span", "", verdict(false), " not"));
if (last > 0) byId("legend").append(element("span", "", "▲ ▼ rank ", step ? `changed by ${step}` : "by a later model"));
for (const [name] of orders()) byId("order").append(element("option", "", name));
byId("order-label").hidden = !data.scores;
byId("filter").addEventListener("input", listQueries);
byId("order").addEventListener("change", listQueries);
byId("ask").hidden = !data.live;
byId("offline").hidden = data.live;
byId("offline").textContent = `This file holds the answers to ${data.queries.length} queries of the corpus. Sentences of your own: idiomtune explore <run>.`;
byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("text").value;
  if (!text.trim()) return byId("text").focus();
  const words = byId("words").value;
  const isAsBefore = current && current.text === text && current.words === words;
  if (!isAsBefore) current = { query: null, text, words, start: marked.words === words ? marked.start : null };
  if (!words.trim()) mode = "sentence";
  return show();
});
byId("text").addEventListener("input", () => {
  if (!byId("text").value.includes(byId("words").value)) byId("words").value = ""; // those of another sentence
});
byId("mark").addEventListener("click", () => {
  const { value, selectionStart, selectionEnd } = byId("text");
  byId("words").value = value.slice(selectionStart, selectionEnd);
  marked = { words: byId("words").value, start: Array.from(value.slice(0, selectionStart)).length };
});
byId("skip").addEventListener("click", () => byId("main").focus());
byId("queries").addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const buttons = [...byId("queries").querySelectorAll("button")];
  const next = buttons[buttons.indexOf(document.activeElement) + step];
  if (!step || !next) return;
  event.preventDefault();
  next.focus();
});
listQueries();
const first = byId("queries").querySelector("button");
if (!openAddress() && first) choose(Number(first.dataset.number));
addEventListener("hashchange", openAddress);
if (matchMedia("(max-width: 56rem)").matches) byId("list").open = false;
