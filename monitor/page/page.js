'use strict';

// Everything that comes from the server is put into the page as text, never as HTML.

const $ = (id) => document.getElementById(id);
const base = 'v1/queues';
const name = new URLSearchParams(location.search).get('queue'); // of the source that is shown; null for the overview
const first = 25; // rows of a table

let sources = []; // as they were listed last
let stream = null;
let previous = null; // the last sample
let received = 0; // when that was
let points = []; // of the charts
let wanted = ''; // the key that was searched for and is in the picture
let filter = null; // the group whose tasks are shown
let buried = []; // the tasks that are shown
let after = ''; // of the next page of them
let known = ''; // of which state of the queue the failures are
let showing = false; // while they are asked for

// Numbers and times.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat('en', { maximumSignificantDigits: 3, notation: 'compact' });
const small = new Intl.NumberFormat('en', { maximumSignificantDigits: 2 });
const none = '–';

function number(n) { return n < 1e6 ? whole.format(n) : short.format(n); }

function rate(n) { return n > 0 && n < 10 ? small.format(n) : number(n); }

function duration(ns) {
  const s = ns / 1e9;
  if (s < 1e-3) return `${Number((s * 1e6).toPrecision(2))} µs`;
  if (s < 1) return `${Number((s * 1e3).toPrecision(2))} ms`;
  if (s < 60) return `${Number(s.toPrecision(2))} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  return `${number(Math.floor(s / 3600))} h ${Math.floor(s / 60 % 60)} min`;
}

function percent(share) { return `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`; }

function date(time) { return new Date(time).toLocaleString(); }

// lately returns what is known of the last minute.
function lately(of, field, show = number) { return of.minute ? show(of.minute[field] || 0) : none; }

function span(sample) { return sample.minute ? duration(Math.round(sample.minute.span_ns / 1e9) * 1e9) : 'last minute'; }

// Elements.

function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [attribute, value] of Object.entries(attributes || {})) element.setAttribute(attribute, value);
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

// Tables. A column is [label, text of a row, value to sort by, what else is done to the cell]; with a
// value, its head sorts the table.

const orders = {}; // of tables: [column, direction]

function table(id, rows, columns, rowID, actions, create) {
  const element = $(id).querySelector('table');
  if (!element.tHead) element.append(make('thead', null, make('tr')), make('tbody'));
  const order = orders[id];
  fill(element.tHead.rows[0], columns.map((c, i) => ({ label: c[0], i })).concat(actions ? [{ label: 'Actions', i: -1 }] : []),
    ({ i }) => String(i),
    ({ label, i }) => {
      const head = make('th', { scope: 'col' });
      if (i < 0) head.className = 'action';
      if (i < 0 || !columns[i][2]) {
        head.append(label);
        return head;
      }
      const sorter = make('button', { type: 'button', class: 'sort' }, label);
      sorter.addEventListener('click', () => {
        orders[id] = orders[id] && orders[id][0] === i ? [i, -orders[id][1]] : [i, typeof columns[i][2](rows[0] || {}) === 'string' ? 1 : -1];
        refresh(id);
      });
      head.append(sorter);
      return head;
    },
    (head, { label, i }) => {
      if (head.firstElementChild) set(head.firstElementChild, label);
      head.setAttribute('aria-sort', !order || order[0] !== i ? 'none' : order[1] > 0 ? 'ascending' : 'descending');
      if (i < 0 || !columns[i][2]) head.removeAttribute('aria-sort');
    });
  if (order) {
    const value = columns[order[0]][2];
    rows = [...rows].sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * order[1]);
  }
  fill(element.tBodies[0], rows, rowID,
    (row) => {
      const cells = columns.map((_, i) => i === 0 ? make('th', { scope: 'row' }, ...(create ? create(row) : [])) : make('td'));
      return make('tr', null, ...cells, ...(actions ? [make('td', { class: 'action' })] : []));
    },
    (element, row) => {
      columns.forEach(([, text, , also], i) => {
        const cell = element.children[i];
        if (text) set(cell, text(row));
        if (also) also(cell, row);
      });
      if (actions) buttons(element.lastElementChild, actions(row));
    });
}

let shown = {}; // functions that show tables anew
function refresh(id) { if (shown[id]) shown[id](); }

// A button is {label, name of what it is for, action, question}.
function buttons(parent, wanted) {
  fill(parent, wanted, (b) => b.label + b.of,
    (b) => {
      const element = make('button', { type: 'button', 'aria-label': `${b.label} ${b.of}` }, b.label);
      element.addEventListener('click', () => element.run());
      return element;
    },
    (element, b) => { element.run = b.run || (() => act(b)); });
}

function listed(of) { return sources.find((s) => s.name === of); }

function may(action, of) { return Boolean(listed(of) && listed(of).actions.includes(action)); }

// owner is the source of the keys and tasks that are shown: of a pool that is its queue.
function owner() { return previous && previous.queue || name; }

// taskButtons returns those of some actions that are allowed for a task.
function taskButtons(id, ...names) {
  const labels = { kick: 'Kick', bury: 'Bury', delete: 'Delete' };
  return names.filter((n) => may(n, owner())).map((n) => ({
    label: labels[n], of: `task ${id}`, source: owner(), action: n, form: { id }, question: n === 'delete' ? `Delete task ${id}?` : '',
  }));
}

function keyButtons(key, paused) {
  const of = owner();
  const wanted = [];
  if (!paused && may('pause-key', of)) wanted.push({ label: 'Pause', of: key, source: of, action: 'pause-key', form: { key } });
  if (paused !== false && may('resume-key', of)) wanted.push({ label: 'Resume', of: key, source: of, action: 'resume-key', form: { key } });
  if (may('drop-key', of)) {
    wanted.push({ label: 'Drop', of: key, source: of, action: 'drop-key', form: { key }, question: `Remove what is queued of ${key}?` });
  }
  return wanted;
}

// Colours: a dozen hues, neighbours far apart, and behind these the same with patterns. A key keeps
// its own as long as it is shown. The last keys are grey, until a colour is free.

const colours = new Map();
const grey = 48;

function colour(keys) {
  const shown = new Set(keys);
  for (const [key, n] of colours) if (!shown.has(key) || n >= grey) colours.delete(key);
  const taken = new Set(colours.values());
  let free = 0;
  for (const key of shown) {
    if (colours.has(key)) continue;
    while (taken.has(free)) free++;
    taken.add(free);
    colours.set(key, free);
  }
}

function paint(element, key) {
  const n = colours.get(key);
  element.style.setProperty('--hue', n * 150 % 360);
  element.style.setProperty('--much', n < grey ? '62%' : '0%');
  element.dataset.pattern = n < grey ? Math.floor(n / 12) : 0;
}

// What is shown of each kind of source: [label, value of a sample, whether it is a counter].

const plain = (field) => (s) => number(s.stats[field]);
const capacity = (s) => s.stats.capacity >= 1 << 29 ? 'no limit' : number(s.stats.capacity);
const oldest = ['Oldest', (s) => s.oldest_age_ns ? duration(s.oldest_age_ns) : none];
const wait = (field) => (s) => s.minute && s.minute.wait ? `≤ ${duration(s.minute.wait[field])}` : none;
const waited = (s) => s.minute && s.minute.wait ? s.minute.wait.p99_ns : 0;
const waits = [['Half waited lately', wait('p50_ns')], ['99 % waited lately', wait('p99_ns')]];
const state = ['State', (s) => s.state];
const kinds = {
  queue: [
    ['Queued', plain('len')], ['Keys', plain('keys')], ['Capacity', capacity], oldest, ...waits,
    ['Producers waiting', plain('waiting_push')], ['Consumers waiting', plain('waiting_pop')], ['Pushed', plain('pushed')],
    ['Popped', plain('popped')], ['Refused', plain('refused')], ['Evicted', plain('evicted')], state,
  ],
  tasks: [
    ['Ready', plain('ready')], ['Delayed', plain('delayed')], ['Taken', plain('taken')], ['Buried', plain('buried')],
    ['Held', plain('held')], ['Keys', plain('keys')], ['Capacity', capacity], oldest, ...waits, ['Put', plain('puts'), true],
    ['Acked', plain('acks'), true], ['Handed back', plain('releases'), true], ['Leases lost', plain('losses'), true],
    ['Expired', plain('expiries'), true], ['Refused', plain('refused'), true], ['Evicted', plain('evicted'), true], state,
  ],
  pool: [
    ['Busy', plain('running')], ['Idle', plain('idle')], ['At least', plain('min')], ['At most', plain('max')], ...waits,
    ['Schedule', (s) => s.stats.range || 'none in force'], ['Started', plain('started')], ['Succeeded', plain('succeeded')],
    ['Retried', plain('retried')], ['Failed', plain('failed')], ['Panics', plain('panics')], ['Cancelled', plain('cancelled')],
    ['Lost', plain('lost')], ['Dead letters', plain('dead_letters')], state,
  ],
  limiter: [
    ['Permits', plain('limit')], ['Held', plain('held')], ['Waiting', plain('waiting')], ['Keys', plain('keys')], oldest,
    ['Admitted', plain('admitted')], ['Refused', plain('refused')], state,
  ],
};

const scopes = {
  process: 'Rates, and what was put, acked and so on, are what this process has done. Others may share the store.',
  nothing: 'This process only looks. How much is put and done, those who do it count: it is not in the store.',
};

function showNumbers(sample) {
  set($('scope'), scopes[sample.counts] || '');
  $('scope').hidden = !sample.counts;
  const numbers = kinds[sample.kind].filter(([, , counter]) => !counter || sample.counts !== 'nothing');
  fill($('numbers'), numbers, ([label]) => label,
    ([label]) => make('div', null, make('dt', null, label), make('dd')),
    (child, [label, value]) => {
      set(child.firstElementChild, label.replace('lately', `in ${span(sample)}`));
      set(child.lastElementChild, value(sample));
    });
}

function showActions(sample) {
  const wanted = [];
  const add = (label, action) => { if (may(action, name)) wanted.push({ label, of: name, source: name, action, form: {} }); };
  add(...(sample.state === 'paused' ? ['Resume', 'resume'] : ['Pause', 'pause']));
  buttons($('actions'), wanted);
  $('actions').hidden = wanted.length === 0;
  document.body.classList.toggle('no-actions', keyButtons('').length === 0);
}

function showWrong(alerts) {
  $('wrong').hidden = alerts.length === 0;
  fill($('wrong').querySelector('ul'), alerts, ({ of, text }) => `${of} ${text}`,
    ({ of, text }) => make('li', null, ...(of ? [make('a', { href: `?queue=${encodeURIComponent(of)}` }, of), ': '] : []), text), () => {});
}

// The overview.

const latelyValue = (field) => ({ minute: m }) => m ? (m[field] || 0) + (field === 'failed' && m.retried || 0) : 0;
const latelyOf = (field) => (s) => s.counts === 'nothing' || !s.minute ? none : number(latelyValue(field)(s));
const workers = (s) => {
  if (!s.stats) return none;
  switch (s.kind) {
    case 'pool': return `${number(s.stats.running)} of ${number(s.stats.max)} busy`;
    case 'tasks': return `${number(s.stats.taken)} taken`;
    case 'limiter': return `${number(s.stats.held)} of ${number(s.stats.limit)} held`;
    default: return s.stats.waiting_pop ? `${number(s.stats.waiting_pop)} wait` : none;
  }
};
const overview = [
  ['Source', null, (s) => s.name],
  ['Backlog', (s) => s.stats ? number(s.backlog) : none, (s) => s.backlog],
  ['Oldest', (s) => s.oldest_age_ns ? duration(s.oldest_age_ns) : none, (s) => s.oldest_age_ns],
  ['Served lately', latelyOf('served'), latelyValue('served')],
  ['Refused lately', latelyOf('refused'), latelyValue('refused'), (cell, s) => cell.classList.toggle('much', latelyValue('refused')(s) > 0)],
  ['Failed lately', latelyOf('failed'), latelyValue('failed'), (cell, s) => cell.classList.toggle('much', latelyValue('failed')(s) > 0)],
  ['99 % waited lately', wait('p99_ns'), waited],
  ['Workers', workers, workers],
  ['State', (s) => s.state, (s) => s.state, (cell, s) => cell.classList.toggle('much', s.state !== 'open')],
];

shown.overview = () => table('overview', sources, overview, (s) => s.name, null,
  (s) => [make('a', { href: `?queue=${encodeURIComponent(s.name)}` }, s.name)]);

function showSources() {
  fill($('sources'), [null, ...sources.map((s) => s.name)], (of) => of === null ? '' : `q${of}`,
    (of) => {
      const link = make('a', { href: of === null ? '?' : `?queue=${encodeURIComponent(of)}` }, of === null ? 'Overview' : of);
      if (of === name) link.setAttribute('aria-current', 'page');
      return make('li', null, link);
    },
    (item, of) => item.classList.toggle('bad', of !== null && listed(of).alerts.length > 0));
  if (name !== null) return;
  $('overview').hidden = false;
  shown.overview();
  showWrong(sources.flatMap((s) => s.alerts.map((text) => ({ of: s.name, text }))));
}

// The charts: what is there now has one scale, and what happens in a second has one.

const gauges = { queue: ['backlog'], tasks: ['backlog', 'busy', 'buried'], pool: ['backlog', 'busy'], limiter: ['backlog', 'busy'] };
const labels = { backlog: 'waiting', busy: { tasks: 'taken', pool: 'busy', limiter: 'held' }, buried: 'buried' };
const rates = ['served', 'refused', 'failed'];
const step = 5000;
const gap = 3;

function panels(sample) {
  const values = (p) => gauges[sample.kind].map((g) => p[g]);
  const change = (p, before) => before && p.time > before.time
    ? rates.map((r) => p[r] < before[r] ? NaN : ((p[r] || 0) - (before[r] || 0)) / (p.time - before.time) * 1000) : rates.map(() => NaN);
  const all = [{ title: 'Now', labels: gauges[sample.kind].map((g) => labels[g][sample.kind] || labels[g]), values, show: number }];
  if (sample.counts !== 'nothing') all.push({ title: 'A second', labels: rates, values: change, show: rate });
  return all;
}

function isGap(p, before) { return !before || p.time - before.time > gap * Math.max(step, p.step || 0); }

function remember(sample) {
  const now = { ...countsOf(sample), time: Date.parse(sample.at), backlog: sample.backlog };
  if (points.length && points[points.length - 1].live) points.pop();
  const last = points[points.length - 1];
  now.live = Boolean(last) && now.time - last.time < step;
  points.push(now);
  points = points.filter((p) => p.time >= now.time - 3600e3);
}

function countsOf({ kind, stats: s }) {
  switch (kind) {
    case 'queue': return { served: s.popped, refused: s.refused };
    case 'tasks': return { served: s.takes, refused: s.refused, failed: s.buries, busy: s.taken, buried: s.buried };
    case 'pool': return { served: s.started, refused: s.refused, failed: s.failed + s.retried, busy: s.running };
    default: return { served: s.admitted, refused: s.refused, busy: s.held };
  }
}

function showCharts(sample) {
  const now = points[points.length - 1].time;
  const range = Math.min($('range').value * 60e3, Math.max(60e3, now - points[0].time)); // or as much of it as is known
  const shown = points.filter((p) => p.time >= now - range - 2 * step);
  fill($('panels'), panels(sample), (p) => p.title,
    (p) => {
      const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
      for (const [attribute, value] of Object.entries({ viewBox: '0 0 600 100', preserveAspectRatio: 'none', role: 'img', tabindex: '0', class: 'chart' })) {
        svg.setAttribute(attribute, value);
      }
      svg.addEventListener('pointermove', (e) => point((e.clientX - svg.getBoundingClientRect().left) / svg.clientWidth));
      svg.addEventListener('pointerleave', () => point(null));
      svg.addEventListener('keydown', (e) => {
        const by = { ArrowLeft: -0.01, ArrowRight: 0.01 }[e.key];
        if (by) point(Math.min(1, Math.max(0, (pointed === null ? 1 : pointed) + by)));
      });
      return make('div', null, make('ul', { class: 'legend' }), make('span', { class: 'most' }), svg);
    },
    (child, p) => {
      const values = shown.map((at, i) => p.values(at, shown[i - 1]));
      const most = Math.max(1e-9, ...values.flat().filter((v) => v >= 0));
      const here = values[nearest(shown, now, range)] || [];
      fill(child.firstElementChild, p.labels.map((label, i) => ({ label, i })), ({ label }) => label,
        ({ label, i }) => make('li', { class: `c${i + 1}` }, ['━ ', '┅ ', '┈ '][i], make('b'), ` ${label}${p.title === 'Now' ? '' : ' a second'}`),
        (item, { i }) => set(item.querySelector('b'), here[i] >= 0 ? p.show(here[i]) : none));
      set(child.querySelector('.most'), most > 1e-9 ? p.show(most) : '0');
      const svg = child.lastElementChild;
      svg.setAttribute('aria-label', p.labels.map((label, i) => `${label} ${here[i] >= 0 ? p.show(here[i]) : none}`).join(', '));
      const x = (at) => (600 - (now - at.time) / range * 600).toFixed(1);
      p.labels.forEach((_, i) => {
        let path = svg.children[i];
        if (!path) {
          path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
          path.setAttribute('class', `c${i + 1}`);
          svg.append(path);
        }
        let drawn = false;
        path.setAttribute('d', shown.map((at, n) => {
          const v = values[n][i];
          const joined = drawn && !isGap(at, shown[n - 1]);
          drawn = v >= 0 && !(p.title !== 'Now' && isGap(at, shown[n - 1]));
          return drawn ? `${joined ? 'L' : 'M'}${x(at)} ${(97 - v / most * 92).toFixed(1)}${joined ? '' : 'h.1'}` : '';
        }).join(''));
      });
    });
  const at = pointed === null ? null : shown[nearest(shown, now, range)];
  set($('since'), `${new Date(now - range).toLocaleTimeString()}`);
  set($('pointer'), at ? `At ${new Date(at.time).toLocaleTimeString()}` : '');
  set($('until'), new Date(now).toLocaleTimeString());
}

let pointed = null; // where in the charts: 0 to 1

function nearest(shown, now, range) {
  if (pointed === null) return shown.length - 1;
  const time = now - range * (1 - pointed);
  let best = 0;
  shown.forEach((p, i) => { if (Math.abs(p.time - time) < Math.abs(shown[best].time - time)) best = i; });
  return best;
}

function point(at) {
  pointed = at;
  if (previous) showCharts(previous);
}

// The picture of what leaves next: consecutive items of a key are one block.

function showUpcoming(sample) {
  const upcoming = sample.upcoming || [];
  $('next').hidden = sample.kind === 'limiter' || sample.kind === 'pool' && !sample.queue;
  set($('next-title'), sample.queue ? `Next to leave the queue ${sample.queue}` : 'Next to leave');
  $('next-note').hidden = !sample.counts;
  const n = sample.new_key_waits;
  set($('newcomer'), upcoming.length === 0 ? 'Nothing is about to leave.' : n === undefined
    ? sample.more ? 'A new key waits for more items than are shown.' : '' : n === 0 ? 'A new key is next.'
    : `A new key waits for at most ${number(n)} ${n === 1 ? 'item' : 'items'}.`);
  const blocks = [];
  const counts = new Map();
  upcoming.forEach((u) => {
    const last = blocks[blocks.length - 1];
    if (last && last.key === u.key && last.priority === u.priority) last.items.push(u);
    else blocks.push({ key: u.key, priority: u.priority, items: [u] });
    counts.set(u.key, (counts.get(u.key) || 0) + 1);
  });
  const often = [...counts].sort((a, b) => b[1] - a[1]);
  const keys = (sample.keys || []).map((k) => k.key);
  colour([...keys.slice(0, 6), ...often.map(([key]) => key), ...keys]);
  const unit = blocks.length > 70 ? 0.75 : 1.75;
  fill($('strip'), blocks.map((b, i) => ({ ...b, i })), (b) => String(b.i), () => make('span', { class: 'block' }),
    (block, b) => {
      const many = b.items.length > 1 ? ` ${b.items.length}` : '';
      const width = b.items.length * unit;
      set(block, [b.key + many, many.trim()].find((text) => text.length * 0.5 + 0.4 <= width) || '');
      const cost = b.items.reduce((sum, u) => sum + (u.cost || 0), 0);
      const age = Math.max(...b.items.map((u) => u.age_ns || 0));
      block.title = [b.key + many, cost ? `cost ${number(cost)}` : '', age ? `waits for ${duration(age)}` : '',
        b.priority ? `priority ${b.priority}` : '', b.items[0].payload].filter(Boolean).join('\n');
      block.style.setProperty('--wide', `${width}rem`);
      paint(block, b.key);
      block.classList.toggle('here', wanted !== '' && b.key === wanted);
    });
  const words = blocks.slice(0, 20).map((b) => b.key + (b.items.length > 1 ? ` ${b.items.length}` : '')).join(', ');
  $('strip').setAttribute('aria-label', blocks.length > 20 ? `${words}, and others` : words || 'nothing');
  fill($('hues'), often.slice(0, 12), ([key]) => key,
    ([key]) => make('li', null, make('span', { class: 'swatch', 'aria-hidden': 'true' }), make('span')),
    (item, [key, n]) => {
      paint(item.firstElementChild, key);
      set(item.lastElementChild, `${key} ${number(n)}`);
    });
  fill($('order'), upcoming.slice(0, 100).map((u, i) => ({ ...u, position: i })), (u) => u.id || String(u.position),
    (u) => make('li', null, make('span'), ' ', make('span')),
    (child, u) => {
      const about = [u.key, u.cost ? `cost ${number(u.cost)}` : '', u.age_ns ? duration(u.age_ns) : '', u.payload];
      set(child.firstElementChild, about.filter(Boolean).join(' · '));
      if (u.id) buttons(child.lastElementChild, taskButtons(u.id, 'bury', 'delete'));
    });
}

async function search(event) {
  event.preventDefault();
  const key = $('key').value;
  wanted = '';
  $('found-actions').replaceChildren();
  if (key === '') return;
  const answer = await ask(`${path(name)}/search?key=${encodeURIComponent(key)}`);
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
  if (!previous) return;
  buttons($('found-actions'), keyButtons(answer.key));
  showUpcoming(previous);
}

// The keys.

shown.keys = () => {
  const sample = previous;
  const keys = sample.keys || [];
  $('keys').hidden = keys.length === 0;
  const tasks = sample.kind === 'tasks' || keys.some((k) => k.taken || k.buried);
  const value = (field) => (k) => k.minute ? k.minute[field] || 0 : -1;
  const isCounted = (k) => k.total.served + k.total.refused + k.total.evicted + k.missed > 0;
  const count = (field) => (k) => isCounted(k) ? lately(k, field) : none;
  const much = (field) => (cell, k) => cell.classList.toggle('much', value(field)(k) > 0);
  const columns = [
    ['Key', null, (k) => k.key, (cell, k) => paint(cell.firstElementChild, k.key)],
    ['Queued', (k) => number(k.len), (k) => k.len],
    ['Oldest', (k) => k.oldest_age_ns ? duration(k.oldest_age_ns) : none, (k) => k.oldest_age_ns || 0],
    ['Share lately', (k) => isCounted(k) && k.minute && sample.minute ? percent(k.share) : none, (k) => k.share],
    ['Served lately', count('served'), value('served')],
    ['Refused lately', count('refused'), value('refused'), much('refused')],
    ['Evicted lately', count('evicted'), value('evicted'), much('evicted')],
    ['99 % waited lately', wait('p99_ns'), waited],
    ...(tasks ? [['Taken', (k) => number(k.taken), (k) => k.taken], ['Buried', (k) => number(k.buried), (k) => k.buried]] : []),
    ['State', (k) => k.paused ? 'paused' : k.waits_until ? 'waits' : none, (k) => Number(k.paused), (cell, k) => cell.classList.toggle('much', k.paused)],
  ];
  const order = orders.keys || (orders.keys = [1, -1]);
  const key = columns[order[0]][2];
  const rows = [...keys].sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * order[1]);
  const paused = rows.slice(first).filter((k) => k.paused); // they are always there
  table('keys', rows.slice(0, first).concat(paused), columns, (k) => k.key, (k) => keyButtons(k.key, k.paused || !!k.waits_until),
    (k) => [make('span', { class: 'swatch', 'aria-hidden': 'true' }), k.key]);
  let note = `The first ${first} of each order, and those that are paused. Lately is in ${span(sample)}. `;
  if (!keys.some(isCounted)) note += 'Without CountKeys nothing is known of who was served or refused. ';
  if (sample.keys_at && sample.keys_at < '1') note += 'To count the keys takes too long here: Queued is what leaves next.';
  else if (sample.keys_at) note += `Queued is as of ${duration(Math.max(0, Date.parse(sample.at) - Date.parse(sample.keys_at)) * 1e6)} before.`;
  set($('keys-note'), note);
};

// What has failed.

async function showFailures(sample) {
  const s = sample.stats;
  const now = `${[s.buried, s.delayed, s.releases, s.failed, s.retried]} ${JSON.stringify(filter)} ${$('by').value}`;
  if (!['tasks', 'pool'].includes(sample.kind) || now === known || showing) return;
  known = now;
  showing = true;
  const answer = await ask(`${path(name)}/failures?by=${$('by').value}`);
  showing = false;
  if (answer.error) {
    known = ''; // so that it is tried again
    $('failures').hidden = false;
    set($('failures-note'), `What has failed cannot be shown: ${answer.error}`);
    return;
  }
  const kept = answer.gone ? 0 : answer.count;
  const retrying = answer.retrying || 0;
  $('failures').hidden = answer.count + retrying === 0;
  $('work').hidden = kept === 0;
  if (kept === 0) {
    filter = null;
    buried = [];
    refresh('buried');
    $('task').hidden = true;
  }
  let note = answer.count === 0 ? '' : answer.count === 1 ? 'One task is buried.' : `${number(answer.count)} tasks are buried.`;
  if (answer.read < answer.count) note += ` The groups are of ${number(answer.read)} of them.`;
  if (answer.gone) note = `${number(answer.count)} have failed for good. None is buried: they went to DeadLetters, or were forgotten. The groups are of the last ${number(answer.read)}.`;
  if (retrying) note += ` ${number(retrying)}${answer.more ? ' of the first 10,000 delayed tasks' : ''} ${retrying === 1 ? 'waits' : 'wait'} for a retry.`;
  set($('failures-note'), note.trim());
  const all = (group, n, of) => {
    const form = group ? Object.fromEntries(['key', 'kind', 'reason'].map((field) => [field, group[field] || ''])) : {};
    const what = `${number(n)} buried ${n === 1 ? 'task' : 'tasks'}${group ? ` of ${groupName(group)}` : ''}`;
    const range = group && group.first !== group.last ? `: task ${group.first} to ${group.last}` : '';
    return [['Kick', 'kick-all'], ['Delete', 'delete-all']].filter(([, action]) => may(action, owner())).map(([label, action]) =>
      ({ label: group ? label : `${label} all ${number(n)}`, of, source: owner(), action, form, question: `${label} ${what}${range}?` }));
  };
  buttons($('failures-actions'), kept ? all(null, kept, 'buried') : []);
  shown.groups = () => table('groups', answer.groups, [
    ['Reason', (g) => g.reason || 'any', (g) => g.reason || ''], ['Key', (g) => g.key || 'any', (g) => g.key || ''],
    ['Kind', (g) => g.kind === '""' ? none : g.kind || 'any', (g) => g.kind || ''], [answer.gone ? 'Tasks' : 'Buried', (g) => number(g.count), (g) => g.count],
    ...(answer.gone ? [] : [['Wait for a retry', (g) => number(g.retrying || 0), (g) => g.retrying || 0]]),
  ], (g) => JSON.stringify([g.reason, g.key, g.kind]), (g) => kept && g.count ? [{ label: 'Show', of: groupName(g), run: () => choose(g) }, ...all(g, g.count, groupName(g))] : []);
  shown.groups();
  if (kept > 0) await page('');
}

function groupName(g) { return [g.key, g.kind === '""' ? 'no kind' : g.kind, g.reason].filter(Boolean).join(': '); }

function choose(group) {
  filter = group;
  buried = [];
  known = '';
  showFailures(previous);
}

async function page(from) {
  const query = new URLSearchParams({ limit: from ? first : Math.min(100, Math.max(first, buried.length)) });
  if (from) query.set('after', from);
  if (filter) for (const field of ['key', 'kind', 'reason']) query.set(field, filter[field] || '');
  const answer = await ask(`${path(name)}/buried?${query}`);
  if (answer.error) return;
  buried = from ? buried.concat(answer.buried) : answer.buried;
  after = answer.after || '';
  $('more').hidden = after === '';
  $('any').hidden = !filter;
  set($('buried-title'), filter ? `Buried tasks of ${groupName(filter)}` : 'Buried tasks');
  shown.buried = () => table('buried', buried, [
    ['Task', (t) => t.id], ['Key', (t) => t.key, (t) => t.key], ['Kind', (t) => t.kind || none, (t) => t.kind || ''],
    ['Attempts', (t) => number(t.attempts), (t) => t.attempts], ['Put', (t) => date(t.created), (t) => t.created],
    ['Reason', (t) => t.reason, (t) => t.reason], ['Payload', (t) => t.payload || none],
  ], (t) => t.id, (t) => [{ label: 'Details', of: `of task ${t.id}`, run: () => detail(t.id) }, ...taskButtons(t.id, 'kick', 'delete')]);
  shown.buried();
}

async function detail(id) {
  const t = await ask(`${path(name)}/tasks/${id}`);
  $('task').hidden = false;
  set($('task').querySelector('h3'), t.error ? `Task ${id}: ${t.error}` : `Task ${id}`);
  const facts = t.error ? [] : [
    ['State', t.state], ['Key', t.key], ['Kind', t.kind], ['Unique key', t.unique_key], ['Group', t.group], ['Priority', t.priority], ['Cost', t.cost],
    ['Attempts', `${t.attempts}${t.max_attempts ? ` of ${t.max_attempts}` : ''}`], ['Time to run', t.ttr_ns && duration(t.ttr_ns)],
    ['Put', date(t.created)], ['Ready', t.ready_at && date(t.ready_at)], ['Until', t.until && date(t.until)], ['Expires', t.expires && date(t.expires)],
    ['Consumer', t.consumer], ['Code', t.code], ...Object.entries(t.metadata || {}).map(([k, v]) => [`Metadata ${k}`, v]),
  ].filter(([, value]) => value !== undefined && value !== '');
  $('task').querySelector('dl').replaceChildren(...facts.map(([label, value]) => make('div', null, make('dt', null, label), make('dd', null, String(value)))));
  set($('task').querySelector('pre'), [t.reason, t.stack, t.payload].filter(Boolean).join('\n\n'));
  $('task').focus();
}

async function act({ source, action, form, question }) {
  if (question && !window.confirm(question)) return;
  tell(`${action}: …`);
  const answer = await ask(`${path(source)}/actions/${action}`, { method: 'POST', body: new URLSearchParams(form) });
  if (answer.error) tell(`${action}: ${answer.error}`, true);
  else tell(`${action}: ${number(answer.done)} done${answer.more ? '; there are more, so do it again' : ''}`);
  known = '';
  await poll();
  if (previous && !previous.error) showFailures(previous);
}

// What was done, and what came of it, stays until something else is done.
function tell(text, bad) {
  set($('outcome'), text);
  $('outcome').hidden = false;
  $('outcome').classList.toggle('problem', Boolean(bad));
}

// The connection.

function path(of) { return `${base}/${encodeURIComponent(of)}`; }

async function ask(what, options) {
  try {
    return await (await fetch(what, options)).json();
  } catch (error) {
    return { error: `no answer: ${error.message}` };
  }
}

// away tells why the numbers are old; the empty text that they are not.
function away(problem) {
  set($('away'), problem);
  $('away').hidden = problem === '';
  document.body.classList.toggle('old', problem !== '');
}

function tellAge() {
  const age = (Date.now() - received) / 1000;
  set($('age'), received === 0 ? '' : age < 3 ? '· as of now' : `· as of ${duration(Math.round(age) * 1e9)} ago`);
  $('age').classList.toggle('much', age >= 10);
}

function show(sample) {
  if (sample.error) {
    away(sample.alerts[0]);
    return;
  }
  away('');
  received = Date.now();
  for (const section of document.querySelectorAll('.one')) {
    if (!['next', 'keys', 'failures'].includes(section.id)) section.hidden = false;
  }
  previous = sample;
  remember(sample);
  showActions(sample);
  showWrong(sample.alerts.map((text) => ({ of: '', text })));
  showNumbers(sample);
  showCharts(sample);
  showUpcoming(sample);
  shown.keys();
  showFailures(sample);
  tellAge();
}

async function connect() {
  if (stream || document.hidden || name === null || !listed(name)) return;
  const url = `${path(name)}/events`;
  const opened = stream = new EventSource(url);
  stream.onopen = () => set($('status'), 'Live');
  stream.onmessage = (event) => {
    set($('status'), 'Live');
    show(JSON.parse(event.data));
  };
  stream.onerror = async () => {
    set($('status'), 'Disconnected; trying again …');
    if (!stream || stream.readyState !== EventSource.CLOSED) return;
    disconnect();
    setTimeout(connect, 5000);
    const end = new AbortController();
    try { // for why
      const answer = await fetch(url, { signal: end.signal });
      if (!answer.ok) away((await answer.json()).error);
    } catch (error) {
      away(`no answer: ${error.message}`);
    }
    end.abort();
  };
  const old = await ask(`${path(name)}/history`);
  if (!old.points || stream !== opened) return;
  const before = old.points.map((p) => ({ ...p, failed: (p.failed || 0) + (p.retried || 0), time: Date.parse(p.at) }));
  points = before.concat(points.filter((p) => before.every((b) => b.time < p.time)));
  if (previous && points.length) showCharts(previous);
}

function disconnect() {
  if (stream) stream.close();
  stream = null;
}

// poll asks for the sources, which may come and go.
async function poll() {
  const answer = await ask(base);
  if (answer.error) {
    if (name === null) away(answer.error);
    return;
  }
  sources = answer.queues;
  if (name === null) {
    received = Date.now();
    away('');
    set($('status'), 'Live');
    tellAge();
  }
  showSources();
  if (name !== null && !listed(name)) {
    disconnect();
    for (const section of document.querySelectorAll('.one')) section.hidden = true;
    set($('status'), 'Not found');
    away(`There is no queue ${name} here.`);
    return;
  }
  connect();
}

document.title = name === null ? 'fairq' : `${name} – fairq`;
$('search').addEventListener('submit', search);
$('range').addEventListener('change', () => previous && showCharts(previous));
$('more').addEventListener('click', () => page(after));
$('by').addEventListener('change', () => choose(null));
$('any').addEventListener('click', () => choose(null));
// A page that nobody sees has nothing looked at.
document.addEventListener('visibilitychange', () => document.hidden ? disconnect() : poll());
setInterval(tellAge, 1000);
setInterval(() => document.hidden || poll(), name === null ? 2000 : 5000);
poll();
