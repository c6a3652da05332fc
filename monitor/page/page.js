'use strict';

// Everything that comes from the server is put into the page as text, never as HTML.

const $ = (id) => document.getElementById(id);
const base = 'v1/queues';
let view = new URLSearchParams(location.search); // what is shown, so that it has an address
const name = view.get('queue'); // of the source that is shown; null for the overview
const first = 25; // rows of a table

let sources = []; // as they were listed last
let following = null; // ends the wait for the next sample
let previous = null; // the last sample
let asOf = 0; // its time
let skew = Infinity; // of this clock against the server's
let points = []; // of the charts
let list = null; // the tasks that are shown
let chosen = ''; // their state, if the address names none
let rows = first; // how many of them
let known = ''; // for which state of the queue they were asked
let asking = false;

// The address. Whoever gets it sees the same.

function link(changes) {
  const next = new URLSearchParams(view);
  for (const [field, value] of Object.entries(changes)) {
    if (value) next.set(field, value);
    else next.delete(field);
  }
  return `?${next}`;
}

function go(changes) {
  history.pushState(null, '', link(changes));
  adopt();
}

function adopt() {
  view = new URLSearchParams(location.search);
  rows = first;
  known = '';
  for (const field of ['find', 'key', 'kind', 'reason', 'by', 'range']) $(field).value = view.get(field) || { range: '15' }[field] || '';
  search();
  Object.values(shown).forEach((show) => show());
  if (!previous) return;
  showCharts(previous);
  showTasks();
}

// anchor returns a link to what another address shows.
function anchor(text, of) {
  const element = make('a', {}, text);
  element.addEventListener('click', (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go(of());
  });
  return element;
}

// Numbers and times.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat('en', { maximumSignificantDigits: 3, notation: 'compact' });
const small = new Intl.NumberFormat('en', { maximumSignificantDigits: 2 });
const none = '–';

function number(n) { return n < 1e6 ? whole.format(n) : short.format(n); }

function rate(n) { return n > 0 && n < 10 ? small.format(n) : number(n); }

function duration(ns) {
  const s = ns / 1e9;
  if (s < 1) return `${Number((s * 1e3).toPrecision(2))} ms`;
  if (s < 60) return `${Number(s.toPrecision(2))} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  return `${number(Math.floor(s / 3600))} h ${Math.floor(s / 60 % 60)} min`;
}

function percent(share) { return `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`; }

function date(time) { return time ? new Date(time).toLocaleString() : none; }

function since(time) { return duration(Math.max(0, Date.now() - skew - Date.parse(time)) * 1e6); }

function span(sample) { return sample.minute ? duration(Math.round(sample.minute.span_ns / 1e9) * 1e9) : 'last minute'; }

// Elements.

function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function make(tag, attributes, ...children) {
  const element = /svg|path/.test(tag) ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [attribute, value] of Object.entries(attributes || {})) element.setAttribute(attribute, value);
  element.append(...children);
  return element;
}

// fill has an element show items, in order, with children that are used again: those of the same
// id, so that what has the focus keeps it. While something has it, the order stays. If that goes,
// the focus is on what is left.
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
  const lost = [...known.values()].some((child) => child.contains(document.activeElement));
  for (const child of known.values()) child.remove();
  if (lost) (parent.querySelector('button, a') || parent.closest('[tabindex]')).focus();
}

// Tables. A column is [label, text of a row, value to sort by, what else is done to the cell]; with a
// value, its head sorts the table.

// ordered returns the label of the column by which a table is sorted, and the direction.
function ordered(id) {
  const [, minus, label] = /^(-?)(.*)$/.exec(view.get(`order-${id}`) || { keys: '-Queued' }[id] || '');
  return [label, minus ? -1 : 1];
}

function inOrder(id, rows, columns) {
  const [label, direction] = ordered(id);
  const column = columns.find((c) => c[0] === label);
  if (!column || !column[2]) return rows;
  const value = column[2];
  return [...rows].sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * direction);
}

function table(id, rows, columns, rowID, actions, create) {
  const element = $(id).querySelector('table');
  if (!element.tHead) element.append(make('thead', null, make('tr')), make('tbody'));
  const [by, direction] = ordered(id);
  fill(element.tHead.rows[0], actions ? [...columns, ['Actions']] : columns, ([label]) => label,
    ([label, , value]) => {
      const head = make('th', { scope: 'col' });
      if (label === 'Actions') head.className = 'action';
      if (!value) {
        head.append(label);
        return head;
      }
      const sorter = make('button', { type: 'button', class: 'sort' }, label);
      sorter.addEventListener('click', () => {
        const [last, was] = ordered(id);
        const minus = last === label ? was > 0 : typeof value(rows[0] || {}) !== 'string';
        go({ [`order-${id}`]: (minus ? '-' : '') + label });
      });
      head.append(sorter);
      return head;
    },
    (head, [label, , value]) => {
      if (value) head.ariaSort = by !== label ? 'none' : direction > 0 ? 'ascending' : 'descending';
    });
  rows = inOrder(id, rows, columns);
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

// Columns of sources and keys.

const much = (is) => (cell, row) => cell.classList.toggle('much', Boolean(is(row)));
const oldest = ['Oldest', (s) => s.oldest_age_ns ? duration(s.oldest_age_ns) : none, (s) => s.oldest_age_ns || 0];
const waited = ['99 % waited lately', (s) => wait('p99_ns')(s), (s) => s.minute && s.minute.wait ? s.minute.wait.p99_ns : 0];

// lately returns the column of what has happened in the last minute, where that is known.
function lately(field, isKnown) {
  const value = ({ minute: m }) => m ? (m[field] || 0) + (field === 'failed' && m.retried || 0) : -1;
  return [`${labelled(field)} lately`, (s) => s.minute && isKnown(s, value(s)) ? number(value(s)) : none, value, much((s) => field !== 'served' && value(s) > 0)];
}

let shown = {}; // functions that show tables anew

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

// offer returns the button for an action, if it is permitted.
function offer(action, of, form, question, source = owner()) {
  return may(action, source) ? [{ label: labelled(action.split('-')[0]), of, source, action, form, question }] : [];
}

function keyButtons(key, paused) {
  return [
    ...paused ? [] : offer('pause-key', key, { key }), ...paused === false ? [] : offer('resume-key', key, { key }),
    ...offer('limit-key', key).map((b) => ({ ...b, label: 'Limits', run: async () => { await fillLimits(key); $('limited').focus(); } })),
    ...offer('drop-key', key, { key }, `Remove what is queued of ${key}?`),
  ];
}

// fillLimits shows the limits that a key has, because the form sets all of them.
async function fillLimits(key) {
  const found = await ask(`${path(owner())}/search?key=${encodeURIComponent(key)}`);
  if (found.error) tell(found.error, true);
  const { Weight, MaxInFlight, Rate = {} } = found.key === key && found.own || {};
  const values = { limited: key, weight: Weight, 'in-flight': MaxInFlight, rate: Rate.Limit, burst: Rate.Burst };
  for (const [id, value] of Object.entries(values)) $(id).value = value || '';
}

// The Stats have the same names as in Go.

const wait = (field) => (s) => s.minute && s.minute.wait ? `≤ ${duration(s.minute.wait[field])}` : none;
const gauges = ['ready', 'delayed', 'taken', 'buried', 'held', 'keys', 'capacity', 'counted'];

function labelled(name) { return (name[0].toUpperCase() + name.slice(1)).replace(/_ns$/, '').replaceAll('_', ' '); }

function showNumber(name, value) {
  if (typeof value === 'string') return value || none;
  if (name.endsWith('_ns')) return value ? duration(value) : none;
  return name === 'capacity' && value >= 1 << 29 ? 'no limit' : number(value);
}

const scopes = {
  process: 'Rates, and what was put, acked and so on, are what this process has done. Others may share the store.',
  nothing: 'This process only looks. How much is put and done, those who do it count: it is not in the store.',
};

function showNumbers(sample) {
  set($('scope'), scopes[sample.counts] || '');
  $('scope').hidden = !sample.counts;
  const numbers = Object.entries(sample.stats).filter(([n, value]) => ['number', 'string'].includes(typeof value) &&
    (sample.counts !== 'nothing' || gauges.includes(n))).map(([n, value]) => [labelled(n), showNumber(n, value)]);
  const oldest = sample.oldest_age_ns && !('oldest_age_ns' in sample.stats) ? [['Oldest', duration(sample.oldest_age_ns)]] : [];
  const waits = [['p50_ns', 'Half'], ['p99_ns', '99 %']].map(([field, part]) => [`${part} waited in ${span(sample)}`, wait(field)(sample)]);
  fill($('numbers'), [['State', sample.state], ...numbers, ...oldest, ...waits], ([label]) => label,
    ([label]) => make('div', null, make('dt', null, label), make('dd')),
    (child, [, value]) => set(child.lastElementChild, value));
}

function showActions(sample) {
  const wanted = offer(sample.state === 'paused' ? 'resume' : 'pause', name, {}, '', name);
  buttons($('actions'), wanted);
  $('actions').hidden = wanted.length === 0;
  $('limits').hidden = !may('limit-key', owner());
  document.body.classList.toggle('no-actions', keyButtons('').length === 0);
}

function showWrong(alerts) {
  $('wrong').hidden = alerts.length === 0;
  fill($('wrong').querySelector('ul'), alerts, ({ of, text }) => `${of} ${text}`,
    ({ of, text }) => make('li', null, ...(of ? [linkTo(of), ': '] : []), text), () => {});
}

// linkTo returns a link to a source, or to the overview for null.
function linkTo(of) {
  return of === null ? make('a', { href: '?' }, 'Overview') : make('a', { href: `?queue=${encodeURIComponent(of)}` }, of);
}

// The overview.

const busy = (s) => s.point ? s.point.busy : -1;
const workers = (s) => {
  if (!s.point) return none;
  const most = s.stats.max || s.stats.limit;
  return number(busy(s)) + (most ? ` of ${number(most)}` : '');
};
const overview = [
  ['Source', null, (s) => s.name],
  ['Backlog', (s) => s.stats ? number(s.backlog) : none, (s) => s.backlog],
  oldest, ...['served', 'refused', 'failed'].map((field) => lately(field, (s, n) => n > 0 || !s.counts)), waited,
  ['Busy', workers, busy],
  ['State', (s) => s.state, (s) => s.state, much((s) => s.state !== 'open')],
];

shown.overview = () => table('overview', sources, overview, (s) => s.name, null,
  (s) => [linkTo(s.name)]);

function showSources() {
  fill($('sources'), [null, ...sources.map((s) => s.name)], (of) => of === null ? '' : `q${of}`,
    (of) => {
      const link = linkTo(of);
      if (of === name) link.ariaCurrent = 'page';
      return make('li', null, link);
    },
    (item, of) => item.classList.toggle('bad', of !== null && listed(of).alerts.length > 0));
  if (name !== null) return;
  $('overview').hidden = false;
  shown.overview();
  showWrong(sources.flatMap((s) => s.alerts.map((text) => ({ of: s.name, text }))));
}

// The charts: what is there now has one scale, and what happens in a second has one.

const drawn = { queue: ['backlog'], tasks: ['backlog', 'busy', 'buried'], pool: ['backlog', 'busy'], limiter: ['backlog', 'busy'] };
const rates = ['served', 'refused', 'failed'];
const step = 5000;
const gap = 3;

function panels(sample) {
  const values = (p) => drawn[sample.kind].map((g) => p[g]);
  const change = (p, before = p) => rates.map((r) => p[r] < before[r] ? NaN : ((p[r] || 0) - (before[r] || 0)) / (p.time - before.time) * 1000);
  const all = [{ title: 'Now', labels: drawn[sample.kind], values, show: number }];
  if (sample.counts !== 'nothing') all.push({ title: 'A second', labels: rates, values: change, show: rate });
  return all;
}

function isGap(p, before) { return !before || p.time - before.time > gap * Math.max(step, p.step || 0); }

function remember(sample) {
  const now = pointOf(sample.point);
  if (points.length && points[points.length - 1].live) points.pop();
  const last = points[points.length - 1];
  now.live = Boolean(last) && now.time - last.time < step;
  points.push(now);
  points = points.filter((p) => p.time >= now.time - 3600e3);
}

function pointOf(p) { return { ...p, failed: (p.failed || 0) + (p.retried || 0), time: Date.parse(p.at) }; }

function showCharts(sample) {
  const now = points[points.length - 1].time;
  const range = Math.min($('range').value * 60e3, Math.max(60e3, now - points[0].time)); // or as much of it as is known
  const shown = points.filter((p) => p.time >= now - range - 2 * step);
  fill($('panels'), panels(sample), (p) => p.title,
    (p) => {
      const svg = make('svg', { viewBox: '0 0 600 100', preserveAspectRatio: 'none', role: 'img', tabindex: '0', class: 'chart' }, ...p.labels.map((_, i) => make('path', { class: `c${i + 1}` })));
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
        let drawn = false;
        svg.children[i].setAttribute('d', shown.map((at, n) => {
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

// What leaves next.

function showNext(sample) {
  $('next').hidden = sample.kind === 'limiter' || sample.kind === 'pool' && !sample.queue;
  set($('next-title'), sample.queue ? `Next to leave the queue ${sample.queue}` : 'Next to leave');
  const n = sample.new_key_waits;
  set($('newcomer'), !sample.upcoming ? 'Nothing is about to leave.' : n === undefined
    ? sample.more ? `A new key waits for more than ${number(sample.upcoming.length)} items.` : '' : n === 0 ? 'A new key is next.'
    : `A new key waits for at most ${number(n)} ${n === 1 ? 'item' : 'items'}.`);
}

async function search() {
  const key = view.get('find');
  $('found-actions').replaceChildren();
  $('found').value = '';
  if (!key || name === null) return;
  const answer = await ask(`${path(name)}/search?key=${encodeURIComponent(key)}`);
  if (answer.error) {
    $('found').value = answer.error;
    return;
  }
  let text = `${answer.key}: `;
  if (answer.position !== null) text += answer.position === 0 ? 'is next' : `${number(answer.position)} before it`;
  else if (answer.more_than !== undefined && answer.len !== undefined) text += `more than ${number(answer.more_than)} before it`;
  else if (answer.more_than !== undefined) text += `not among the next ${number(answer.more_than)}`; // maybe it has none
  else text += 'nothing of it leaves soon';
  if (answer.len !== undefined) text += `, ${number(answer.len)} queued`;
  $('found').value = text;
  if (previous) buttons($('found-actions'), keyButtons(answer.key));
}

// The keys.

shown.keys = () => {
  const sample = previous;
  if (!sample) return;
  const keys = sample.keys || [];
  $('keys').hidden = keys.length === 0;
  const tasks = sample.kind === 'tasks' || keys.some((k) => k.taken || k.buried);
  const isCounted = (k) => k.total.served + k.total.refused + k.total.evicted + (k.missed || 0) > 0;
  const columns = [
    ['Key', (k) => k.key, (k) => k.key],
    ['Queued', (k) => number(k.backlog), (k) => k.backlog],
    oldest,
    ['Share lately', (k) => isCounted(k) && k.minute && sample.minute ? percent(k.share) : none, (k) => k.share],
    ...['served', 'refused', 'evicted'].map((field) => lately(field, isCounted)), waited,
    ...(tasks ? [['Taken', (k) => number(k.taken || 0), (k) => k.taken || 0], ['Buried', (k) => number(k.buried || 0), (k) => k.buried || 0]] : []),
    ...(keys.some((k) => k.limits) ? [['Limits', (k) => k.limits || none, (k) => k.limits || '']] : []),
    ['State', (k) => [k.why || none, /held|rate/.test(k.why) ? `until ${date(k.waits_until)}` : ''].join(' ').trim(), (k) => k.why || '', much((k) => k.why)],
  ];
  const sorted = inOrder('keys', keys, columns);
  const always = sorted.slice(first).filter((k) => k.paused || k.limits);
  table('keys', sorted.slice(0, first).concat(always), columns, (k) => k.key, (k) => keyButtons(k.key, k.paused || !!k.waits_until));
  let note = `The first ${first} of each order, and those that are paused or have limits. Lately is in ${span(sample)}. `;
  if (!keys.some(isCounted)) note += 'Without CountKeys nothing is known of who was served or refused. ';
  if (sample.keys_of) note += `Queued is of the first ${number(sample.keys_of)} of ${number(sample.keys_all)} tasks: the others are being counted.`;
  else if (sample.keys_at) {
    note += `Queued was counted ${since(sample.keys_at)} ago`;
    note += sample.keys_ns ? `, over ${duration(sample.keys_ns)}.` : '.';
  }
  set($('keys-note'), note);
};

// The tasks of a state, or their groups.

const stateNames = {
  ready: 'Ready', taken: 'Running', retrying: 'Waiting for a retry', delayed: 'Delayed', held: 'Held', buried: 'Buried', failed: 'Failed lately',
};
const filters = ['key', 'kind', 'reason'];

async function showTasks() {
  const sample = previous;
  $('tasks').hidden = sample.kind === 'limiter';
  if (sample.kind === 'queue') { // of which nothing but the next items can be known
    const next = sample.upcoming || [];
    list = { state: 'next', by: 'none', read: next.length, tasks: next.slice(0, rows) };
    shown.tasks();
    return;
  }
  if ($('tasks').hidden) return;
  const of = { ...sample.stats, ...sample.queue_stats };
  const names = Object.keys(stateNames).filter((s) => s === 'failed' ? sample.kind === 'pool' : 'ready' in of);
  if (!of[chosen]) chosen = sample.minute && sample.minute.retried ? 'retrying' : ['buried', 'taken', 'ready', 'failed'].find((s) => of[s]) || names[0];
  const state = view.get('state') || chosen;
  fill($('states'), names, (s) => s, (s) => make('li', null, anchor('', () => ({ state: s, task: '' }))),
    (item, s) => {
      const element = item.firstElementChild;
      set(element, `${stateNames[s]}${s in of && s !== 'failed' ? ` ${number(of[s])}` : ''}`);
      element.href = link({ state: s, task: '' });
      element.ariaCurrent = s === state ? 'true' : null;
    });
  const byReason = ['retrying', 'buried', 'failed'].includes(state) && !view.get('reason');
  const by = view.get('by') || (byReason ? 'reason' : 'none');
  const query = new URLSearchParams({ state, limit: rows });
  for (const field of filters) if (view.get(field)) query.set(field, view.get(field));
  if (by !== 'none') query.set('by', by);
  const now = `${JSON.stringify(of)} ${query} ${view.get('task')}`;
  if (now !== known && !asking) {
    known = now;
    asking = true;
    const answer = await ask(`${path(name)}/tasks?${query}`);
    asking = false;
    if (known !== now) return showTasks(); // the address is another one
    if (answer.error) {
      known = ''; // so that it is tried again
      set($('tasks-note'), `The tasks cannot be shown: ${answer.error}`);
      return;
    }
    list = { ...answer, state, by, buried: of.buried };
    await detail();
  }
  shown.tasks();
}

shown.tasks = () => {
  if (!list) return;
  const { state, by } = list;
  const grouped = by !== 'none';
  let note = `${number(list.read)}${list.more ? ' of the first 10,000' : ''} ${list.read === 1 ? 'task' : 'tasks'}. `;
  if (state === 'next') note = `The next ${number(list.read)} items, in order. `;
  else if (state === 'failed') note = `The last ${number(list.read)} that have failed for good here. `;
  else if (state === 'ready' && !view.get('key') && !view.get('kind')) note += 'They leave in this order; those that cannot be taken now are not among them.';
  set($('tasks-note'), note);
  $('more').hidden = grouped || list.tasks.length === list.read || rows >= 1000;
  $('clear').hidden = !filters.some((field) => view.get(field));
  const all = (g, n, of) => {
    const form = g ? Object.fromEntries(filters.map((field) => [field, g[field] || ''])) : {};
    const what = `${g && list.more ? 'at least ' : ''}${number(n)} buried ${n === 1 ? 'task' : 'tasks'}${g ? ` of ${groupName(g)}` : ''}`;
    const range = g && !list.more && g.first !== g.last ? `: task ${g.first} to ${g.last}` : '';
    return (state === 'buried' ? ['kick-all', 'delete-all'] : []).flatMap((action) => offer(action, of, form))
      .map((b) => ({ ...b, label: g ? b.label : `${b.label} all ${number(n)}`, question: `${b.label} ${what}${range}?` }));
  };
  buttons($('tasks-actions'), list.read && $('clear').hidden ? all(null, list.buried, 'buried') : []);
  const kind = ['Kind', (t) => t.kind === '""' ? none : t.kind || (grouped ? 'any' : none), (t) => t.kind || ''];
  if (grouped) {
    table('tasks', list.groups, [
      ['Reason', (g) => g.reason || 'any', (g) => g.reason || ''], ['Key', (g) => g.key || 'any', (g) => g.key || ''], kind, ['Tasks', (g) => number(g.count), (g) => g.count],
    ], (g) => JSON.stringify([state, g.reason, g.key, g.kind]), (g) =>
      [{ label: 'Show', of: groupName(g), run: () => go({ state, by: 'none', ...Object.fromEntries(filters.filter((field) => g[field]).map((field) => [field, g[field]])) }) }, ...all(g, g.count, groupName(g))]);
    return;
  }
  if (state === 'next') {
    table('tasks', list.tasks.map((t, i) => ({ ...t, i: i + 1 })), [
      ['Position', (t) => number(t.i)], ['Key', (t) => t.key], ['Cost', (t) => number(t.cost || 1)], ['Waits', (t) => t.age_ns ? duration(t.age_ns) : none], ['Item', (t) => t.payload || none],
    ], (t) => String(t.i));
    return;
  }
  const next = { taken: [], failed: [], buried: ['kick', 'delete'] }[state] || ['bury', 'delete'];
  const when = (label, field) => [label, (t) => date(t[field]), (t) => t[field] || ''];
  table('tasks', list.tasks.map((t, i) => ({ ...t, i })), [
    ['Task', null, null, (cell, t) => { cell.firstElementChild.href = link({ task: t.id }); }], ['Key', (t) => t.key, (t) => t.key], kind,
    ['Attempts', (t) => number(t.attempts), (t) => t.attempts],
    ...(state === 'taken' ? [['Consumer', (t) => t.consumer], ['Runs for', (t) => since(t.since), (t) => -Date.parse(t.since)], when('Lease until', 'until')] : []),
    ...(['retrying', 'delayed'].includes(state) ? [when('Next', 'until')] : []), state === 'failed' ? when('Failed', 'since') : when('Put', 'created'),
    ['Reason', (t) => t.reason || none, (t) => t.reason], ...(list.tasks.some((t) => t.payload) ? [['Payload', (t) => t.payload || none]] : []),
  ], (t) => `${state} ${t.id === '0' ? t.i : t.id}`, next.some((n) => may(n, owner())) && ((t) => next.flatMap((n) => offer(n, `task ${t.id}`, { id: t.id }, n === 'delete' ? `Delete task ${t.id}?` : ''))), (t) => [anchor(t.id, () => ({ task: t.id }))]);
};

function groupName(g) { return [g.key, g.kind === '""' ? 'no kind' : g.kind, g.reason].filter(Boolean).join(': '); }

// detail shows all of the task that the address names.
async function detail() {
  const id = view.get('task');
  if (!id) {
    $('task').hidden = true;
    return;
  }
  const t = await ask(`${path(name)}/tasks/${encodeURIComponent(id)}`);
  set($('task').querySelector('h3'), t.error ? `Task ${id}: ${t.error}` : `Task ${id}`);
  const { error, reason, stack, payload, metadata, ...rest } = t;
  const fact = (field, value) => /^\d{4}-.*T/.test(value) ? date(value) : field.endsWith('_ns') ? duration(value) : String(value);
  const facts = error ? [] : Object.entries(rest).map(([field, value]) => [labelled(field), fact(field, value)])
    .concat(Object.entries(metadata || {}).map(([field, value]) => [`Metadata ${field}`, value]));
  $('task').querySelector('dl').replaceChildren(...facts.map(([label, value]) => make('div', null, make('dt', null, label), make('dd', null, value))));
  set($('task').querySelector('pre'), [reason, stack, payload].filter(Boolean).join('\n\n'));
  if ($('task').hidden) {
    $('task').hidden = false;
    $('task').focus();
  }
}

async function act({ source, action, form, question }) {
  if (question && !window.confirm(question)) return;
  tell(`${action}: …`);
  const answer = await ask(`${path(source)}/actions/${action}`, { method: 'POST', body: new URLSearchParams(form) });
  if (answer.error) tell(`${action}: ${answer.error}`, true);
  else tell(`${action}: ${number(answer.done)} done${answer.more ? '; there are more, so do it again' : ''}`);
  known = '';
  await poll();
  if (previous) showTasks();
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
    const answer = await fetch(what, options);
    skew = Math.min(skew, Date.now() - Date.parse(answer.headers.get('Date') || '') || Infinity);
    return await answer.json();
  } catch (error) {
    return { error: `no answer: ${error.message}` };
  }
}

// away tells why the numbers are old; the empty text that they are not.
function away(problem) {
  set($('away'), problem);
  $('away').hidden = problem === '';
}

function tellAge() {
  const age = (Date.now() - skew - asOf) / 1000;
  set($('age'), asOf === 0 ? '' : age < 3 ? '· as of now' : `· as of ${duration(Math.round(age) * 1e9)} ago`);
  $('age').classList.toggle('much', age >= 10);
}

function show(sample) {
  if (sample.error) {
    away(sample.alerts[0]);
    return;
  }
  away('');
  asOf = Date.parse(sample.at);
  skew = Math.min(skew, Date.now() - asOf);
  for (const section of document.querySelectorAll('.one')) section.hidden = false; // unless it is empty: see below
  previous = sample;
  remember(sample);
  showActions(sample);
  showWrong(sample.alerts.map((text) => ({ of: '', text })));
  showNumbers(sample);
  showCharts(sample);
  showNext(sample);
  shown.keys();
  showTasks();
  tellAge();
}

// follow shows each sample, and asks for the next one when it has done so.
async function follow() {
  if (following || document.hidden || name === null || !listed(name)) return;
  const end = following = new AbortController();
  ask(`${path(name)}/history`).then((old) => {
    if (!old.points) return;
    const before = old.points.map(pointOf);
    points = before.concat(points.filter((p) => before.every((b) => b.time < p.time)));
    if (previous && points.length) showCharts(previous);
  });
  for (let at = ''; following === end;) {
    const sample = await ask(`${path(name)}/live?after=${encodeURIComponent(at)}`, { signal: end.signal });
    if (following !== end) return;
    at = sample.at || '';
    set($('status'), at ? 'Live' : 'Disconnected; trying again …');
    if (at) {
      show(sample);
    } else {
      away(sample.error);
      await new Promise((done) => { setTimeout(done, 5000); });
    }
  }
}

function leave() {
  if (following) following.abort();
  following = null;
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
    asOf = Date.now() - skew;
    away('');
    set($('status'), 'Live');
    tellAge();
  }
  showSources();
  if (name !== null && !listed(name)) {
    leave();
    for (const section of document.querySelectorAll('.one')) section.hidden = true;
    set($('status'), 'Not found');
    away(`There is no queue ${name} here.`);
    return;
  }
  follow();
}

document.title = name === null ? 'fairq' : `${name} – fairq`;
function submit(id, done) {
  $(id).addEventListener('submit', (event) => {
    event.preventDefault();
    done(Object.fromEntries(new FormData($(id))));
  });
}

submit('search', go);
submit('filter', (form) => go({ ...form, task: '' }));
submit('limits', (form) => act({ source: owner(), action: 'limit-key', form }));
$('limited').addEventListener('change', () => fillLimits($('limited').value));
$('range').addEventListener('change', () => go({ range: $('range').value }));
$('by').addEventListener('change', () => go({ by: $('by').value }));
$('clear').addEventListener('click', () => go({ key: '', kind: '', reason: '', by: '' }));
$('more').addEventListener('click', () => {
  rows += first;
  showTasks();
});
window.addEventListener('popstate', adopt);
// A page that nobody sees has nothing looked at.
document.addEventListener('visibilitychange', () => document.hidden ? leave() : poll());
setInterval(tellAge, 1000);
setInterval(() => document.hidden || poll(), name === null ? 2000 : 5000);
adopt();
poll();
