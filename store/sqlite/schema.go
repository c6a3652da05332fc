package sqlite

// A migration brings the tables from one version to the next; the first makes them. A released
// migration never changes.
type migration struct {
	// minReader is the oldest version of the program that can work with the tables after the
	// migration. If the version before can ignore all additions it is that one, so that both can run
	// side by side during a rollout.
	minReader int
	script    string // ~ stands for the prefix
}

// migrations has all migrations. Their number is the version of this program.
var migrations = []migration{{1, schema1}}

// A row of the table of tasks has the number of its queue and its id in its rowid. So the tasks of
// a queue lie together in the order of their ids, without another index. Zero and "" are written
// as such instead of NULL, because that needs no more room. So each partial index has a condition
// of its own, which the statements repeat.
//
// Columns have no types, so SQLite keeps values as they are, and the driver need not ask for the
// type's name. Strings are kept as text, which SQLite compares byte by byte and does not look
// into.
//
// The payload is last, so that the other columns can be read without it.
const schema1 = `
CREATE TABLE ~queues (
	id INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again
	name UNIQUE NOT NULL,
	settings NOT NULL,
	number NOT NULL DEFAULT 0, -- the greatest number given
	paused NOT NULL DEFAULT 0,
	paused_keys NOT NULL DEFAULT 0,
	ready NOT NULL DEFAULT 0, -- tasks by state
	delayed NOT NULL DEFAULT 0,
	taken NOT NULL DEFAULT 0,
	buried NOT NULL DEFAULT 0,
	held NOT NULL DEFAULT 0
);
CREATE TABLE ~rounds (queue, priority, round NOT NULL,
	PRIMARY KEY (queue, priority)) WITHOUT ROWID;

CREATE TABLE ~tasks (
	id INTEGER PRIMARY KEY, -- queue << 42 | id
	queue NOT NULL, "key" NOT NULL, kind NOT NULL, unique_key NOT NULL, role NOT NULL,
	priority NOT NULL, weight NOT NULL, cost NOT NULL, ttr NOT NULL, max_attempts NOT NULL,
	created NOT NULL, deadline NOT NULL,
	grp NOT NULL, state NOT NULL, takeable NOT NULL, round NOT NULL, used NOT NULL,
	gap NOT NULL, returned NOT NULL, untried NOT NULL, in_line NOT NULL,
	place NOT NULL, since NOT NULL,
	consumer NOT NULL, follower NOT NULL, attempts NOT NULL, ready_at NOT NULL, until NOT NULL,
	expires NOT NULL, latest NOT NULL, wake NOT NULL,
	err_code NOT NULL, err_message, -- NULL if there is none
	metadata NOT NULL, -- JSON, '' if there is none
	payload
);
CREATE INDEX ~tasks_ready ON ~tasks (queue, priority, round, place) WHERE takeable;
CREATE INDEX ~tasks_line ON ~tasks (queue, "key", priority, round, place);
CREATE INDEX ~tasks_place ON ~tasks (queue, "key", kind, priority, place)
	WHERE state = 1 AND in_line;
CREATE INDEX ~tasks_wake ON ~tasks (queue, wake) WHERE wake > 0;
CREATE INDEX ~tasks_since ON ~tasks (queue, consumer, since) WHERE state IN (3, 4);
CREATE INDEX ~tasks_state ON ~tasks (queue, state) WHERE state <> 1 AND state <> 3;
CREATE INDEX ~tasks_group ON ~tasks (queue, grp) WHERE grp <> '';
CREATE UNIQUE INDEX ~tasks_unique_key ON ~tasks (queue, unique_key) WHERE unique_key <> '';

CREATE TABLE ~keys (
	queue, "key", tasks NOT NULL, ready NOT NULL, delayed NOT NULL, taken NOT NULL,
	buried NOT NULL, held NOT NULL, paused NOT NULL, waits NOT NULL, until NOT NULL, hold NOT NULL,
	held_by NOT NULL, filled NOT NULL,
	limits NOT NULL, -- JSON, '' if it has none of its own
	PRIMARY KEY (queue, "key")
) WITHOUT ROWID;
CREATE INDEX ~keys_until ON ~keys (queue, waits, until) WHERE until > 0;
CREATE INDEX ~keys_limits ON ~keys (queue, "key") WHERE limits <> '';

CREATE TABLE ~turns (
	queue, "key", priority, kind, task, round NOT NULL, used NOT NULL, place NOT NULL,
	leads NOT NULL, takeable NOT NULL,
	PRIMARY KEY (queue, "key", priority, kind, task)
) WITHOUT ROWID;
CREATE INDEX ~turns_ready ON ~turns (queue, priority, round, place) WHERE takeable AND leads;
CREATE INDEX ~turns_kind ON ~turns (queue, kind, priority, round, place) WHERE takeable;

CREATE TABLE ~served (queue, priority, "key", round NOT NULL, used NOT NULL,
	PRIMARY KEY (queue, priority, "key")) WITHOUT ROWID;
CREATE INDEX ~served_round ON ~served (queue, priority, round) WHERE round > 0;

CREATE TABLE ~consumers (
	queue, number, name NOT NULL, epoch NOT NULL, deadline NOT NULL,
	PRIMARY KEY (queue, number)
) WITHOUT ROWID;
CREATE UNIQUE INDEX ~consumers_name ON ~consumers (queue, name);
CREATE INDEX ~consumers_deadline ON ~consumers (queue, deadline) WHERE deadline > 0;

CREATE TABLE ~groups (
	queue, name, started NOT NULL, cancelled NOT NULL, tasks NOT NULL, members NOT NULL,
	PRIMARY KEY (queue, name)
) WITHOUT ROWID;

CREATE TABLE ~outcomes (
	queue, unique_key, id NOT NULL, result NOT NULL, err_code NOT NULL, err_message, until NOT NULL,
	written NOT NULL, -- a number that grows with each one that is written
	PRIMARY KEY (queue, unique_key)
) WITHOUT ROWID;
CREATE INDEX ~outcomes_written ON ~outcomes (queue, written);
CREATE INDEX ~outcomes_until ON ~outcomes (queue, until) WHERE until > 0;

CREATE TABLE ~history (
	id INTEGER PRIMARY KEY, -- as of tasks
	queue NOT NULL, "key" NOT NULL, kind NOT NULL, unique_key NOT NULL, attempts NOT NULL,
	created NOT NULL,
	finished NOT NULL, result NOT NULL, err_code NOT NULL, err_message, until NOT NULL, payload
);
CREATE INDEX ~history_until ON ~history (queue, until) WHERE until > 0;
`
