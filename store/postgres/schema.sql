-- Version 1. Numbers of the schema's own, and times in nanoseconds since 1970, are bigint; what
-- may hold any bytes is bytea. 0 and "" are NULL where that makes rows smaller or partial indexes
-- possible.

CREATE TABLE fairq.queues (
	id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- never used again
	paused_keys bigint NOT NULL DEFAULT 0,
	writer      bigint NOT NULL DEFAULT 0, -- 0, or who alone has written since it was set
	paused      boolean NOT NULL DEFAULT false,
	marked      boolean NOT NULL DEFAULT false, -- it has marks
	name        bytea NOT NULL UNIQUE,
	settings    bytea NOT NULL
);

-- Of ids, leases, places and all else that must be new: one for all queues.
CREATE SEQUENCE fairq.numbers;

-- The round of a priority is the greatest. A new one is a new row, as with counts: no transaction
-- waits for another one to write it, and it is found at the end of the index whatever number of
-- dead rows there are before it.
CREATE TABLE fairq.rounds (
	queue    bigint NOT NULL,
	round    bigint NOT NULL,
	priority smallint NOT NULL
);
CREATE INDEX rounds_round ON fairq.rounds (queue, priority, round);

-- No task or turn of a priority that can be taken comes before its mark. The name is that of the
-- table, or for the turns of a kind '=' and the kind.
CREATE TABLE fairq.marks (
	queue    bigint NOT NULL,
	round    bigint NOT NULL,
	place    bigint NOT NULL,
	priority smallint NOT NULL,
	name     bytea NOT NULL,
	PRIMARY KEY (queue, name, priority)
);

-- How many tasks there are is the sum of the rows of a queue. Transactions add rows; now and then
-- one puts many together.
CREATE TABLE fairq.counts (
	queue   bigint NOT NULL,
	number  bigint GENERATED ALWAYS AS IDENTITY,
	ready   bigint NOT NULL,
	delayed bigint NOT NULL,
	taken   bigint NOT NULL,
	buried  bigint NOT NULL,
	held    bigint NOT NULL
);
CREATE INDEX counts_number ON fairq.counts (queue, number);

CREATE TABLE fairq.tasks (
	queue        bigint NOT NULL,
	id           bigint NOT NULL,
	created      bigint NOT NULL,
	round        bigint NOT NULL,
	place        bigint NOT NULL,
	since        bigint NOT NULL,
	ttr          bigint,
	max_attempts bigint,
	deadline     bigint,
	consumer     bigint,
	follower     bigint,
	ready_at     bigint,
	until        bigint,
	expires      bigint,
	latest       bigint,
	wake         bigint,
	err_code     bigint,
	weight       bigint, -- NULL is 1
	cost         bigint, -- NULL is 1
	used         bigint,
	attempts     bigint NOT NULL,
	priority     smallint NOT NULL,
	state        smallint NOT NULL,
	role         smallint NOT NULL,
	takeable     boolean NOT NULL,
	gap          boolean NOT NULL,
	returned     boolean NOT NULL,
	untried      boolean NOT NULL,
	in_line      boolean NOT NULL,
	key          bytea, -- never NULL
	kind         bytea NOT NULL,
	unique_key   bytea,
	grp          bytea,
	err_message  bytea,
	metadata     bytea, -- JSON
	payload      bytea,
	PRIMARY KEY (queue, id)
);
CREATE INDEX tasks_ready ON fairq.tasks (queue, priority, round, place) WHERE takeable;
-- Its condition, which is always true, keeps it from being used for statements that have nothing
-- to do with keys: when tasks are few, all indexes seem equally good to the planner.
CREATE INDEX tasks_line ON fairq.tasks (queue, key, priority, round, place) WHERE key IS NOT NULL;
CREATE INDEX tasks_place ON fairq.tasks (queue, key, kind, priority, place) WHERE state = 1 AND in_line;
CREATE INDEX tasks_wake ON fairq.tasks (queue, wake) WHERE wake > 0;
CREATE INDEX tasks_since ON fairq.tasks (queue, coalesce(consumer, 0), since) WHERE state IN (3, 4);
CREATE UNIQUE INDEX tasks_unique_key ON fairq.tasks (queue, unique_key) WHERE unique_key <> '';
CREATE INDEX tasks_group ON fairq.tasks (queue, grp, id) WHERE grp <> '';
CREATE INDEX tasks_state ON fairq.tasks (queue, state, id) WHERE state <> 1 AND state <> 3;

CREATE TABLE fairq.keys (
	queue   bigint NOT NULL,
	tasks   bigint NOT NULL,
	ready   bigint NOT NULL,
	delayed bigint NOT NULL,
	taken   bigint NOT NULL,
	buried  bigint NOT NULL,
	held    bigint NOT NULL,
	until   bigint,
	hold    bigint,
	held_by bigint NOT NULL,
	filled  bigint,
	waits   boolean NOT NULL,
	paused  boolean NOT NULL,
	key     bytea NOT NULL,
	limits  bytea, -- JSON
	PRIMARY KEY (queue, key)
);
CREATE INDEX keys_paused ON fairq.keys (queue, key) WHERE paused;
CREATE INDEX keys_until ON fairq.keys (queue, (waits::int), until) WHERE until > 0;
CREATE INDEX keys_limits ON fairq.keys (queue, key) WHERE limits <> '';

CREATE TABLE fairq.turns (
	queue    bigint NOT NULL,
	task     bigint NOT NULL,
	round    bigint NOT NULL,
	used     bigint NOT NULL,
	place    bigint NOT NULL,
	priority smallint NOT NULL,
	leads    boolean NOT NULL,
	takeable boolean NOT NULL,
	key      bytea NOT NULL,
	kind     bytea NOT NULL,
	PRIMARY KEY (queue, key, priority, kind, task)
);
CREATE INDEX turns_ready ON fairq.turns (queue, priority, round, place) WHERE takeable AND leads;
CREATE INDEX turns_kind ON fairq.turns (queue, kind, priority, round, place) WHERE takeable;

CREATE TABLE fairq.served (
	queue    bigint NOT NULL,
	round    bigint NOT NULL,
	used     bigint NOT NULL,
	priority smallint NOT NULL,
	key      bytea NOT NULL,
	PRIMARY KEY (queue, key, priority)
);
CREATE INDEX served_round ON fairq.served (queue, priority, round) WHERE round > 0;

CREATE TABLE fairq.consumers (
	queue    bigint NOT NULL,
	number   bigint NOT NULL,
	epoch    bigint NOT NULL,
	deadline bigint,
	name     bytea NOT NULL,
	PRIMARY KEY (queue, name)
);
CREATE UNIQUE INDEX consumers_number ON fairq.consumers (queue, number);
CREATE INDEX consumers_deadline ON fairq.consumers (queue, deadline) WHERE deadline > 0;

CREATE TABLE fairq.groups (
	queue     bigint NOT NULL,
	tasks     bigint NOT NULL,
	members   bigint NOT NULL,
	started   boolean NOT NULL,
	cancelled boolean NOT NULL,
	name      bytea NOT NULL,
	PRIMARY KEY (queue, name)
);

CREATE TABLE fairq.outcomes (
	queue       bigint NOT NULL,
	id          bigint NOT NULL,
	until       bigint,
	err_code    bigint,
	result      smallint NOT NULL,
	written     xid8 NOT NULL, -- the transaction that did it
	unique_key  bytea NOT NULL,
	err_message bytea,
	PRIMARY KEY (queue, unique_key)
);
CREATE INDEX outcomes_written ON fairq.outcomes (queue, written);
CREATE INDEX outcomes_until ON fairq.outcomes (queue, until) WHERE until > 0;

CREATE TABLE fairq.history (
	queue       bigint NOT NULL,
	id          bigint NOT NULL,
	created     bigint NOT NULL,
	finished    bigint NOT NULL,
	until       bigint,
	attempts    bigint NOT NULL,
	err_code    bigint,
	result      smallint NOT NULL,
	key         bytea NOT NULL,
	kind        bytea NOT NULL,
	unique_key  bytea,
	err_message bytea,
	payload     bytea,
	PRIMARY KEY (queue, id)
);
CREATE INDEX history_until ON fairq.history (queue, until) WHERE until > 0;
