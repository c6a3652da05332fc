'use strict';

// Everything that comes from the server is put into the page as text, never as HTML.

const $ = (id) => document.getElementById(id);
const base = 'v1/queues';
const minutes = 5;

let sources = [];
let source = null; // the one that is shown
let stream = null;
let previous = null; // the last sample
let history = []; // {at, values} of the chart's lines
let wanted = ''; // the key that was searched for and is in the picture

// Numbers and times.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat('en', { maximumSignificantDigits: 3, notation: 'compact' });

function number(n) { return n < 1e6 ? whole.format(n) : short.format(n); }

function duration(ns) {
  const s = ns / 1e9;
  if (s < 1e-3) return `${Number((s * 1e6).toPrecision(2))} µs`;
  if (s < 1) return `${Number((s * 1e3).toPrecision(2))} ms`;
  if (s < 60) return `${Number(s.toPrecision(2))} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  return `${number(Math.floor(s / 3600))} h ${Math.floor(s / 60 % 60)} min`;
}

function percent(share) { return `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`; }

// Elements.

function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// fill has an element show items, in order, with children that are used again: those of the same
// id, so that what has the focus keeps it. While something has it, the order stays.
function fill(parent, items, id, create, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.id, child]));
  const focused = parent.contains(document.activeElement);
  let at = parent.firstElementChild;
  for (const item of items) {
    let child = known.get(id(item));
    if (!child) {
      child = create(item);
      child.dataset.id = id(item);
      parent.insertBefore(child, at);
    } else if (child === at) {
      at = at.nextElementSibling;
    } else if (!focused) {
      parent.insertBefore(child, at);
    }
    known.delete(id(item));
    update(child, item);
  }
  for (const child of known.values()) child.remove();
}

// hue is the colour of a key, the same on every page.
function hue(key) {
  let hash = 2166136261;
  for (let i = 0; i < key.length; i++) hash = Math.imul(hash ^ key.charCodeAt(i), 16777619);
  return (hash >>> 0) * 0.618034 % 360;
}

// What is shown of each kind of source: [label, value of a sample, whether it is a counter], and the
// lines of the chart: [label, what it counts, whether that is a rate].

const none = '–';
const plain = (name) => (s) => number(s.stats[name]);
const capacity = (s) => s.stats.capacity >= 1 << 29 ? 'no limit' : number(s.stats.capacity);
const wait = (name) => (s) => s.wait ? `≤ ${duration(s.wait[name])}` : none;
const kinds = {
  queue: {
    numbers: [
      ['Queued', plain('len')], ['Keys', plain('keys')], ['Capacity', capacity],
      ['Oldest', (s) => s.stats.oldest_age_ns ? duration(s.stats.oldest_age_ns) : none],
      ['Half waited', wait('p50_ns')], ['99 % waited', wait('p99_ns')],
      ['Producers waiting', plain('waiting_push')], ['Consumers waiting', plain('waiting_pop')],
      ['Pushed', plain('pushed')], ['Popped', plain('popped')], ['Refused', plain('refused')],
      ['Evicted', plain('evicted')], ['State', (s) => s.stats.closed ? 'closed' : 'open'],
    ],
    lines: [['queued', (s) => s.len], ['pushed a second', (s) => s.pushed, true], ['popped a second', (s) => s.popped, true]],
  },
  tasks: {
    numbers: [
      ['Ready', plain('ready')], ['Delayed', plain('delayed')], ['Taken', plain('taken')], ['Buried', plain('buried')],
      ['Held', plain('held')], ['Keys', plain('keys')], ['Capacity', capacity], ['Put', plain('puts'), true],
      ['Acked', plain('acks'), true], ['Handed back', plain('releases'), true], ['Leases lost', plain('losses'), true],
      ['Expired', plain('expiries'), true], ['Refused', plain('refused'), true], ['Evicted', plain('evicted'), true],
      ['State', (s) => s.stats.paused ? 'paused' : 'open'],
    ],
    lines: [
      ['ready', (s) => s.ready], ['taken', (s) => s.taken],
      ['put a second', (s) => s.puts, true], ['acked a second', (s) => s.acks, true],
    ],
  },
  pool: {
    numbers: [
      ['Busy', plain('running')], ['Idle', plain('idle')], ['At least', plain('min')], ['At most', plain('max')],
      ['Schedule', (s) => s.stats.range || 'none in force'], ['Started', plain('started')], ['Succeeded', plain('succeeded')],
      ['Retried', plain('retried')], ['Failed', plain('failed')], ['Panics', plain('panics')], ['Cancelled', plain('cancelled')], ['Lost', plain('lost')],
      ['Dead letters', plain('dead_letters')],
      ['State', (s) => s.stats.closed ? 'shut down' : s.stats.paused ? 'paused' : 'working'],
    ],
    lines: [['busy', (s) => s.running], ['started a second', (s) => s.started, true], ['failed a second', (s) => s.failed, true]],
  },
  limiter: {
    numbers: [
      ['Permits', plain('limit')], ['Held', plain('held')], ['Waiting', plain('waiting')], ['Keys', plain('keys')],
      ['Oldest', (s) => s.stats.oldest_wait_ns ? duration(s.stats.oldest_wait_ns) : none],
      ['Admitted', plain('admitted')], ['Refused', plain('refused')], ['State', (s) => s.stats.closed ? 'closed' : 'open'],
    ],
    lines: [['held', (s) => s.held], ['waiting', (s) => s.waiting], ['admitted a second', (s) => s.admitted, true]],
  },
};

// Of tasks that others work on there are no rates: these count what they do, each for itself.
kinds.others = {
  numbers: kinds.tasks.numbers.filter(([, , counter]) => !counter),
  lines: ['ready', 'taken', 'delayed', 'buried'].map((state) => [state, (s) => s[state]]),
};

function kindOf(sample) { return sample.counts === 'nothing' ? kinds.others : kinds[sample.kind]; }

const scopes = {
  process: 'Rates, and what was put, acked and so on, are what this process has done. Others may share the store.',
  nothing: 'This process only looks. How much is put and done, those who do it count: it is not in the store.',
};

function showNumbers(sample) {
  set($('scope'), scopes[sample.counts] || '');
  $('scope').hidden = !sample.counts;
  fill($('numbers'), kindOf(sample).numbers, ([label]) => label,
    ([label]) => make('div', null, make('dt', null, label), make('dd')),
    (child, [, value]) => set(child.lastElementChild, value(sample)));
}

function showChart(sample) {
  const at = Date.parse(sample.at);
  const lines = kindOf(sample).lines;
  const seconds = previous ? (at - Date.parse(previous.at)) / 1000 : 0;
  const values = lines.map(([, value, rate]) => {
    if (!rate) return value(sample.stats);
    return seconds > 0 ? Math.max(0, value(sample.stats) - value(previous.stats)) / seconds : 0;
  });
  if (!previous || seconds > 0) history.push({ at, values });
  history = history.filter((h) => h.at >= at - minutes * 60e3);
  const now = history[history.length - 1].values;
  fill($('legend'), lines.map(([label], i) => ({ label, i })), ({ label }) => label,
    ({ label, i }) => make('li', { class: `c${i + 1}` }, ['━ ', '┅ ', '┈ ', '╌ '][i], make('b'), ` ${label}`),
    (child, { i }) => set(child.querySelector('b'), number(now[i])));
  const chart = $('chart');
  lines.forEach((_, i) => {
    let path = chart.children[i];
    if (!path) {
      path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
      path.setAttribute('class', `c${i + 1}`);
      chart.append(path);
    }
    const most = Math.max(...history.map((h) => h.values[i]), 1e-9);
    path.setAttribute('d', history.map((h, n) =>
      `${n ? 'L' : 'M'}${(600 - (at - h.at) / (minutes * 60e3) * 600).toFixed(1)} ${(155 - h.values[i] / most * 150).toFixed(1)}`).join(''));
  });
}

// The picture of what leaves next, a line for each round. Tasks of each priority have their own.

function roundName({ round, priority }) {
  const name = round === 0 ? 'This round' : round === 1 ? 'Next round' : `Round +${round}`;
  return priority ? `${name}, priority ${priority}` : name;
}

function showUpcoming(sample) {
  const upcoming = sample.upcoming || [];
  $('next').hidden = sample.kind === 'pool' && !sample.queue;
  set($('next-title'), sample.queue ? `Next to leave the queue ${sample.queue}` : 'Next to leave');
  const rounds = [];
  upcoming.forEach((u, i) => {
    u.position = i;
    const last = rounds[rounds.length - 1];
    if (last && last.round === u.round && last.priority === u.priority) last.turns.push(u);
    else rounds.push({ round: u.round, priority: u.priority, turns: [u] });
  });
  const shown = rounds.slice(0, 20);
  const mean = upcoming.reduce((sum, u) => sum + (u.cost || 1), 0) / Math.max(1, upcoming.length);
  fill($('rounds'), shown, (r) => roundName(r),
    (r) => make('div', { class: 'round' }, make('span', null, roundName(r)), make('div', { class: 'turns', role: 'img' })),
    (child, r) => {
      const turns = child.lastElementChild;
      while (turns.childElementCount > r.turns.length) turns.lastElementChild.remove();
      while (turns.childElementCount < r.turns.length) turns.append(make('span', { class: 'turn' }));
      r.turns.forEach((u, i) => {
        const turn = turns.children[i];
        set(turn, u.key);
        turn.title = [u.key, u.cost ? `costs ${number(u.cost)}` : '', u.age_ns ? `waits for ${duration(u.age_ns)}` : '', u.payload]
          .filter(Boolean).join('\n');
        turn.style.setProperty('--hue', hue(u.key));
        turn.style.setProperty('--wide', `${Math.min(40, Math.max(0.4, 2 * (u.cost || 1) / mean)).toFixed(2)}rem`);
        turn.classList.toggle('here', wanted !== '' && u.key === wanted);
      });
      const first = r.turns.slice(0, 10).map((u) => u.key).join(', ');
      turns.setAttribute('aria-label', `${roundName(r)}: ${first}${r.turns.length > 10 ? `, and ${r.turns.length - 10} more` : ''}`);
    });
  fill($('order'), upcoming.slice(0, 100), (u) => u.id || String(u.position),
    (u) => make('li', null, make('span'), ...(u.id ? taskButtons(u.id, 'bury', 'delete') : [])),
    (child, u) => {
      const about = [u.key, u.cost ? `cost ${number(u.cost)}` : '', u.age_ns ? duration(u.age_ns) : '', u.payload];
      set(child.firstElementChild, about.filter(Boolean).join(' · '));
    });
}

async function search(event) {
  event.preventDefault();
  const key = $('key').value;
  wanted = '';
  if (key === '') return;
  const answer = await ask(`${base}/${encodeURIComponent(source.name)}/search?key=${encodeURIComponent(key)}`);
  if (answer.error) {
    $('found').value = answer.error;
    return;
  }
  wanted = answer.key;
  let text = `${answer.key}: `;
  if (answer.position !== null) text += answer.position === 0 ? 'is next' : `${number(answer.position)} before it`;
  else if (answer.more_than !== undefined && answer.len !== undefined) text += `more than ${number(answer.more_than)} before it`;
  else if (answer.more_than !== undefined) text += `not among the next ${number(answer.more_than)}`; // maybe it has none
  else text += 'nothing of it leaves soon';
  if (answer.len !== undefined) text += `, ${number(answer.len)} queued`;
  $('found').value = text;
  if (previous) showUpcoming(previous);
}

// The tables.

function button(label, name, action, ask_) {
  const b = make('button', { type: 'button', 'aria-label': `${label} ${name}` }, label);
  b.addEventListener('click', () => act(action(), ask_));
  return b;
}

function allowed(name) { return source.actions.includes(name); }

// taskButtons returns those of some actions that are allowed for a task.
function taskButtons(id, ...names) {
  const labels = { kick: 'Kick', bury: 'Bury', delete: 'Delete' };
  return names.filter(allowed).map((name) =>
    button(labels[name], `task ${id}`, () => ({ name, id }), name === 'delete' ? `Delete task ${id}?` : ''));
}

function showKeys(sample) {
  const keys = sample.keys || [];
  $('keys').hidden = keys.length === 0;
  const items = sample.kind === 'queue' || keys.some((k) => k.len > 0);
  set($('backlog'), items ? 'Queued' : 'Leave next');
  set($('keys-note'), `Those with the longest backlog first${items ? '' : ', of the keys that are counted and those that leave next'}.`);
  // Without CountKeys nothing is known of who was served. The backlog of a pool is in its queue.
  const counted = keys.some((k) => k.total.served + k.total.refused + k.total.evicted > 0);
  const backlog = sample.kind !== 'pool' || sample.queue;
  fill($('keys').querySelector('tbody'), keys, (k) => k.key,
    (k) => {
      const swatch = make('span', { class: 'swatch', 'aria-hidden': 'true' });
      swatch.style.setProperty('--hue', hue(k.key));
      const row = make('tr', null, make('th', { scope: 'row' }, swatch, k.key));
      for (let i = 0; i < 8; i++) row.append(make('td'));
      const actions = make('td', { class: 'action' });
      const of = (name) => () => ({ name, key: k.key });
      if (allowed('pause-key')) {
        actions.append(button('Pause', k.key, of('pause-key')), button('Resume', k.key, of('resume-key')));
      }
      if (allowed('drop-key')) actions.append(button('Drop', k.key, of('drop-key'), `Remove what is queued of ${k.key}?`));
      row.append(actions);
      return row;
    },
    (row, k) => {
      const count = (show, n) => counted ? show(n) : none;
      [backlog ? number(items ? k.len : k.upcoming) : none, k.oldest_age_ns ? duration(k.oldest_age_ns) : none, count(percent, k.share),
        backlog ? percent(k.fair_share) : none, count(number, k.total.served), count(number, k.total.refused),
        count(number, k.total.evicted), k.wait ? `≤ ${duration(k.wait.p99_ns)}` : none,
      ].forEach((text, i) => set(row.children[i + 1], text));
      row.children[6].classList.toggle('much', k.recent.refused > 0);
      row.children[7].classList.toggle('much', k.recent.evicted > 0);
    });
}

function showBuried(sample) {
  const buried = sample.buried || [];
  $('buried').hidden = buried.length === 0;
  fill($('buried').querySelector('tbody'), buried, (t) => t.id,
    (t) => {
      const row = make('tr', null, make('th', { scope: 'row' }, t.id));
      for (const text of [t.key, t.kind || none, number(t.attempts), new Date(t.created).toLocaleString(), t.reason, t.payload || none]) {
        row.append(make('td', null, text));
      }
      row.append(make('td', { class: 'action' }, ...taskButtons(t.id, 'kick', 'delete')));
      return row;
    },
    (row, t) => {
      set(row.children[3], number(t.attempts));
      set(row.children[5], t.reason);
    });
}

function showActions() {
  const labels = { pause: 'Pause', resume: 'Resume', 'kick-all': 'Kick all buried' };
  const names = Object.keys(labels).filter(allowed);
  $('actions').hidden = names.length === 0;
  $('actions').replaceChildren(...names.map((name) => button(labels[name], source.name, () => ({ name }))));
  document.body.classList.toggle('no-actions', !allowed('drop-key')); // of a key or a task; then there are no others
}

async function act({ name, key, id }, question) {
  if (question && !window.confirm(question)) return;
  const form = new URLSearchParams();
  if (key !== undefined) form.set('key', key);
  if (id !== undefined) form.set('id', id);
  const answer = await ask(`${base}/${encodeURIComponent(source.name)}/actions/${name}`, { method: 'POST', body: form });
  report(answer.error ? `${name}: ${answer.error}` : '');
  if (!answer.error) set($('status'), `${name}: done`);
}

// The connection.

async function ask(path, options) {
  try {
    return await (await fetch(path, options)).json();
  } catch (error) {
    return { error: `no answer: ${error.message}` };
  }
}

function report(problem) {
  set($('problem'), problem);
  $('problem').hidden = problem === '';
}

function show(sample) {
  if (sample.error) {
    report(sample.error);
    return;
  }
  showNumbers(sample);
  showChart(sample);
  showUpcoming(sample);
  showKeys(sample);
  showBuried(sample);
  previous = sample;
}

function connect() {
  if (stream || document.hidden || !source) return;
  stream = new EventSource(`${base}/${encodeURIComponent(source.name)}/events`);
  stream.onopen = () => {
    set($('status'), 'Live');
    report('');
  };
  stream.onmessage = (event) => show(JSON.parse(event.data));
  stream.onerror = () => {
    set($('status'), 'Disconnected; trying again …');
    if (stream.readyState === EventSource.CLOSED) {
      disconnect();
      setTimeout(connect, 5000);
    }
  };
}

function disconnect() {
  if (stream) stream.close();
  stream = null;
}

async function start() {
  const answer = await ask(base);
  if (answer.error) {
    report(answer.error);
    setTimeout(start, 5000);
    return;
  }
  sources = answer.queues;
  const name = new URLSearchParams(location.search).get('queue');
  source = sources.find((s) => s.name === name) || sources[0];
  if (!source) {
    report('There are no queues to look at.');
    return;
  }
  document.title = `${source.name} – fairq`;
  $('sources').replaceChildren(...sources.map((s) => {
    const link = make('a', { href: `?queue=${encodeURIComponent(s.name)}` }, s.name);
    if (s === source) link.setAttribute('aria-current', 'page');
    return make('li', null, link);
  }));
  showActions();
  connect();
}

$('search').addEventListener('submit', search);
// A page that nobody sees has nothing looked at.
document.addEventListener('visibilitychange', () => document.hidden ? disconnect() : connect());
start();
