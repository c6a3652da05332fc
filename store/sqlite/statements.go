package sqlite

import "strings"

// maxArgs is at least the number of arguments of any statement.
const maxArgs = 40

// A statement is one of those below.
type statement int

const (
	beginStatement statement = iota
	commitStatement
	rollbackStatement
	dataVersion
	lockForWriting
	selectTable
	selectMeta

	selectQueue
	insertQueue
	selectHead
	selectRounds
	updateHead
	setRound
	deleteRound
	updateSettings

	insertTask
	insertPlain
	updateTask
	takeTask
	deleteTask
	getTask
	getPayload
	addressTask
	addressPayload
	readyTasks
	readyKind
	readyNoKind
	lastRound
	dueTasks
	duePayloads
	nextWake
	heldTasks
	heldPayloads
	buriedTasks
	groupTasks
	listTasks
	listGroup
	parkedTasks
	parkedKind
	linePriority
	frontedTasks
	nextTask
	hideTasks
	newestTask
	oldestTask

	selectKey
	setKey
	deleteKey
	heaviestKey
	keyStats
	keyPaused
	countKeys
	selectServed
	setServed
	sweepServed

	selectConsumer
	insertConsumer
	consumerName
	beatConsumer
	dueConsumers
	nextDeadline
	deleteConsumer
	listConsumers

	selectGroup
	setGroup
	deleteGroup

	selectOutcome
	setOutcome
	deleteOutcome
	selectEnded
	sweepOutcomes
	nextOutcome

	insertDone
	selectDone
	sweepDone
	nextDone

	dropTasks
	dropDone
	dropFirst // the tables that have a column for the queue, and nothing else
	dropLast  = dropFirst + 6

	numStatements = dropLast + 1
)

// taskColumns are as readTask reads them.
const (
	taskColumns = `id, "key", kind, address, role, priority, weight, ttr, max_attempts, created, deadline, ` +
		`"group", state, takeable, round, seq, gap, returned, place, since, counted, consumer, attempts, ready_at, until, expires, wake, err_code, err`
	withPayload = taskColumns + `, payload`

	fromReady = ` FROM ~tasks WHERE queue = ? AND takeable AND priority <= ?`
	ready     = ` ORDER BY priority, round, seq, place LIMIT 0 + ?`
	fromList  = ` FROM ~tasks WHERE id > ?1 AND id <= ?2 AND (?3 = 0 OR state = ?3) AND (?4 IS NULL OR "key" = ?4) ` +
		`AND (?5 IS NULL OR kind = ?5)`
	listed = ` ORDER BY id LIMIT 0 + ?6`

	consumerColumns = `number, name, epoch, deadline`
)

// statements are the names, as they are in errors, and the texts; ~ stands for the prefix.
//
// Of LIMIT ? SQLite would make a new plan for each value, that is for each call; LIMIT 0 + ? it takes as it is.
var statements = [numStatements]struct{ name, sql string }{
	beginStatement:    {"begin", `BEGIN IMMEDIATE`},
	commitStatement:   {"commit", `COMMIT`},
	rollbackStatement: {"roll back", `ROLLBACK`},
	dataVersion:       {"look for changes", `PRAGMA data_version`},
	lockForWriting:    {"lock for writing", `DELETE FROM ~meta WHERE name = ''`}, // there is none
	selectTable:       {"look for tables", `SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?`},
	selectMeta:        {"read the version", `SELECT value FROM ~meta WHERE name = ?`},

	selectQueue:  {"find a queue", `SELECT id, settings FROM ~queues WHERE name = ?`},
	insertQueue:  {"make a queue", `INSERT INTO ~queues (name, settings) VALUES (?, ?)`},
	selectHead:   {"enter", `SELECT settings, number, paused, paused_keys, ready, delayed, taken, buried, held FROM ~queues WHERE id = ?`},
	selectRounds: {"enter", `SELECT priority, round FROM ~rounds WHERE queue = ?`},
	updateHead: {"save", `UPDATE ~queues SET number = ?, paused = ?, paused_keys = ?, ` +
		`ready = ?, delayed = ?, taken = ?, buried = ?, held = ? WHERE id = ?`},
	setRound:       {"save", `INSERT OR REPLACE INTO ~rounds (queue, priority, round) VALUES (?, ?, ?)`},
	deleteRound:    {"save", `DELETE FROM ~rounds WHERE queue = ? AND priority = ?`},
	updateSettings: {"set settings", `UPDATE ~queues SET settings = ? WHERE id = ?`},

	insertTask: {"insert", `INSERT INTO ~tasks (` + withPayload + `, queue) VALUES (` + marks(31) + `)`},
	insertPlain: {"insert", `INSERT INTO ~tasks (` + withPayload + `, queue) VALUES (?, ?, ?, '', 0, ?, ?, ?, ?, ?, ?, ` +
		`'', ?, ?, ?, ?, 0, 0, ?, ?, ?, 0, 0, ?, ?, ?, ?, 0, NULL, ?, ?)`},
	updateTask: {"update", `UPDATE ~tasks SET "group" = ?, state = ?, takeable = ?, round = ?, seq = ?, gap = ?, returned = ?, place = ?, since = ?, ` +
		`counted = ?, consumer = ?, attempts = ?, ready_at = ?, until = ?, expires = ?, wake = ?, err_code = ?, err = ? WHERE id = ?`},
	takeTask: {"take", `UPDATE ~tasks SET state = ?, takeable = ?, since = ?, counted = ?, ` +
		`consumer = ?, attempts = ?, until = ?, wake = ? WHERE id = ?`},
	deleteTask:     {"delete", `DELETE FROM ~tasks WHERE id = ?`},
	getTask:        {"get", `SELECT ` + taskColumns + ` FROM ~tasks WHERE id = ?`},
	getPayload:     {"get", `SELECT ` + withPayload + ` FROM ~tasks WHERE id = ?`},
	addressTask:    {"get by address", `SELECT ` + taskColumns + ` FROM ~tasks WHERE queue = ? AND address = ? AND address <> ''`},
	addressPayload: {"get by address", `SELECT ` + withPayload + ` FROM ~tasks WHERE queue = ? AND address = ? AND address <> ''`},
	readyTasks:     {"ready", `SELECT ` + withPayload + fromReady + ready},
	readyKind:      {"ready", `SELECT ` + withPayload + fromReady + ` AND kind = ? AND kind <> ''` + ready},
	// Those of no kind are in no index of their own, and are searched for among all.
	readyNoKind: {"ready", `SELECT ` + withPayload + fromReady + ` AND kind = ''` + ready},
	lastRound: {"last", `SELECT round, count(*) FROM ~tasks WHERE queue = ?1 AND "key" = ?2 AND priority = ?3 AND round = ` +
		`(SELECT max(round) FROM ~tasks WHERE queue = ?1 AND "key" = ?2 AND priority = ?3 AND round > ?4)`},
	dueTasks:     {"due", `SELECT ` + taskColumns + ` FROM ~tasks WHERE queue = ? AND wake > 0 AND wake <= ? ORDER BY wake LIMIT 0 + ?`},
	duePayloads:  {"due", `SELECT ` + withPayload + ` FROM ~tasks WHERE queue = ? AND wake > 0 AND wake <= ? ORDER BY wake LIMIT 0 + ?`},
	nextWake:     {"next wake", `SELECT min(wake) FROM ~tasks WHERE queue = ? AND wake > 0`},
	heldTasks:    {"held by", `SELECT ` + taskColumns + ` FROM ~tasks WHERE queue = ? AND consumer = ? AND state = 3 ORDER BY since LIMIT 0 + ?`},
	heldPayloads: {"held by", `SELECT ` + withPayload + ` FROM ~tasks WHERE queue = ? AND consumer = ? AND state = 3 ORDER BY since LIMIT 0 + ?`},
	buriedTasks:  {"buried", `SELECT ` + taskColumns + ` FROM ~tasks WHERE queue = ? AND state = 4 ORDER BY since LIMIT 0 + ?`},
	groupTasks:   {"in group", `SELECT ` + taskColumns + ` FROM ~tasks WHERE queue = ? AND "group" = ? AND "group" <> '' ORDER BY id`},
	listTasks:    {"list", `SELECT ` + withPayload + fromList + listed},
	listGroup:    {"list", `SELECT ` + withPayload + fromList + ` AND queue = ?7 AND "group" = ?8 AND "group" <> ''` + listed},
	parkedTasks: {"parked", `SELECT ` + taskColumns + ` FROM ~tasks WHERE queue = ? AND "key" = ? AND priority = ? AND kind = ? AND round = 0 ` +
		`AND state = 1 AND NOT takeable ORDER BY place LIMIT 0 + ?`},
	parkedKind: {"parked kinds", `SELECT kind FROM ~tasks WHERE queue = ? AND "key" = ? AND priority = ? AND kind >= ? AND round = 0 ` +
		`AND state = 1 AND NOT takeable ORDER BY kind LIMIT 1`},
	nextTask: {"next", `SELECT ` + taskColumns + ` FROM ~tasks WHERE queue = ? AND "key" = ? AND priority = ? AND (round, seq) > (?, ?) ` +
		`AND round > 0 AND +state = 1 ORDER BY round, seq, place LIMIT 1`},
	linePriority: {"priorities of a key", `SELECT min(priority) FROM ~tasks WHERE queue = ? AND "key" = ? AND priority > ?`},
	frontedTasks: {"fronted", `SELECT ` + taskColumns + ` FROM ~tasks WHERE queue = ? AND "key" = ? AND priority = ? AND round > 0 ` +
		`AND +state = 1 ORDER BY round, seq, place`},
	hideTasks:  {"hide", `UPDATE ~tasks SET takeable = 0 WHERE queue = ? AND "key" = ? AND priority = ? AND round > 0 AND +takeable`},
	newestTask: {"newest", `SELECT ` + taskColumns + ` FROM ~tasks WHERE queue = ? AND "key" = ? AND counted ORDER BY since DESC LIMIT 1`},
	oldestTask: {"oldest", `SELECT ` + taskColumns + ` FROM ~tasks WHERE queue = ? AND "key" = ? AND counted ORDER BY since LIMIT 1`},

	selectKey: {"key", `SELECT "key", weight, ready, delayed, taken, buried, held, load, paused FROM ~keys WHERE queue = ? AND "key" = ?`},
	setKey: {"set key", `INSERT INTO ~keys (queue, "key", weight, ready, delayed, taken, buried, held, load, paused) ` +
		`VALUES (` + marks(10) + `) ON CONFLICT (queue, "key") DO UPDATE SET weight = excluded.weight, ready = excluded.ready, ` +
		`delayed = excluded.delayed, taken = excluded.taken, buried = excluded.buried, held = excluded.held, ` +
		`load = excluded.load, paused = excluded.paused`},
	deleteKey: {"set key", `DELETE FROM ~keys WHERE queue = ? AND "key" = ?`},
	heaviestKey: {"heaviest", `SELECT "key", weight, ready, delayed, taken, buried, held, load, paused FROM ~keys WHERE queue = ? ` +
		`ORDER BY load DESC LIMIT 1`},
	keyStats: {"key stats", `SELECT "key", sum(state = 1), sum(state = 2), sum(state = 3), sum(state = 4), sum(state = 5) ` +
		`FROM ~tasks INDEXED BY ~tasks_key WHERE queue = ? GROUP BY "key" ORDER BY count(*) DESC LIMIT 0 + ?`},
	keyPaused: {"key stats", `SELECT "key" FROM ~keys WHERE queue = ? AND paused`},
	countKeys: {"keys", `WITH RECURSIVE k(k) AS (SELECT min("key") FROM ~tasks WHERE queue = ?1 UNION ALL ` +
		`SELECT (SELECT min("key") FROM ~tasks WHERE queue = ?1 AND "key" > k) FROM k WHERE k IS NOT NULL) SELECT count(k) FROM k`},
	selectServed: {"served", `SELECT round FROM ~served WHERE queue = ? AND priority = ? AND "key" = ?`},
	setServed:    {"set served", `INSERT OR REPLACE INTO ~served (queue, priority, "key", round) VALUES (?, ?, ?, ?)`},
	sweepServed: {"sweep served", `DELETE FROM ~served WHERE queue = ?1 AND priority = ?2 AND "key" IN ` +
		`(SELECT "key" FROM ~served WHERE queue = ?1 AND priority = ?2 AND round < ?3 LIMIT 0 + ?4)`},

	selectConsumer: {"consumer", `SELECT ` + consumerColumns + ` FROM ~consumers WHERE queue = ? AND name = ?`},
	insertConsumer: {"add a consumer", `INSERT INTO ~consumers (queue, name, epoch, deadline) VALUES (?, ?, ?, ?)`},
	consumerName:   {"consumer names", `SELECT name FROM ~consumers WHERE number = ? AND +queue = ?`},
	beatConsumer:   {"beat", `UPDATE ~consumers SET deadline = ? WHERE number = ? AND +queue = ?`},
	dueConsumers: {"due consumers", `SELECT ` + consumerColumns + ` FROM ~consumers WHERE queue = ? AND deadline > 0 AND deadline <= ? ` +
		`ORDER BY deadline LIMIT 0 + ?`},
	nextDeadline:   {"next deadline", `SELECT min(deadline) FROM ~consumers WHERE queue = ? AND deadline > 0`},
	deleteConsumer: {"delete a consumer", `DELETE FROM ~consumers WHERE number = ? AND +queue = ?`},
	listConsumers: {"consumers", `SELECT ` + consumerColumns + ` FROM ~consumers WHERE queue = ? AND name >= ? AND (name < ? OR ?) ` +
		`AND (+deadline > ? OR +deadline = 0)`},

	selectGroup: {"group", `SELECT started, cancelled, tasks, members FROM ~groups WHERE queue = ? AND name = ?`},
	setGroup: {"set group", `INSERT OR REPLACE INTO ~groups (queue, name, started, cancelled, tasks, members) ` +
		`VALUES (` + marks(6) + `)`},
	deleteGroup: {"set group", `DELETE FROM ~groups WHERE queue = ? AND name = ?`},

	selectOutcome: {"outcome", `SELECT id, how, err_code, err, until FROM ~outcomes WHERE queue = ? AND address = ?`},
	setOutcome: {"set outcome", `INSERT OR REPLACE INTO ~outcomes (queue, address, id, how, err_code, err, until, number) ` +
		`VALUES (` + marks(8) + `)`},
	deleteOutcome: {"set outcome", `DELETE FROM ~outcomes WHERE queue = ? AND address = ?`},
	selectEnded:   {"ended", `SELECT id, how, err_code, err FROM ~outcomes WHERE queue = ? AND number > ?`},
	sweepOutcomes: {"sweep outcomes", `DELETE FROM ~outcomes WHERE queue = ?1 AND address IN (SELECT address FROM ~outcomes ` +
		`WHERE queue = ?1 AND until > 0 AND until <= ?2 ORDER BY until LIMIT 0 + ?3)`},
	nextOutcome: {"next outcome", `SELECT min(until) FROM ~outcomes WHERE queue = ? AND until > 0`},

	insertDone: {"add done", `INSERT INTO ~done (id, queue, "key", kind, address, attempts, created, finished, how, err_code, err, ` +
		`until, payload) VALUES (` + marks(13) + `)`},
	selectDone: {"done", `SELECT id, "key", kind, address, attempts, created, finished, how, err_code, err, until, payload ` +
		`FROM ~done WHERE id > ? AND id <= ? ORDER BY id LIMIT 0 + ?`},
	sweepDone: {"sweep done", `DELETE FROM ~done WHERE id IN (SELECT id FROM ~done WHERE queue = ? AND until > 0 AND until <= ? ` +
		`ORDER BY until LIMIT 0 + ?)`},
	nextDone: {"next done", `SELECT min(until) FROM ~done WHERE queue = ? AND until > 0`},

	dropTasks:     {"drop", `DELETE FROM ~tasks WHERE id BETWEEN ? AND ?`},
	dropDone:      {"drop", `DELETE FROM ~done WHERE id BETWEEN ? AND ?`},
	dropFirst:     {"drop", `DELETE FROM ~keys WHERE queue = ?`},
	dropFirst + 1: {"drop", `DELETE FROM ~served WHERE queue = ?`},
	dropFirst + 2: {"drop", `DELETE FROM ~consumers WHERE queue = ?`},
	dropFirst + 3: {"drop", `DELETE FROM ~groups WHERE queue = ?`},
	dropFirst + 4: {"drop", `DELETE FROM ~outcomes WHERE queue = ?`},
	dropFirst + 5: {"drop", `DELETE FROM ~rounds WHERE queue = ?`},
	dropFirst + 6: {"drop", `DELETE FROM ~queues WHERE id = ?`},
}

// text returns the statement with the prefix.
func (s statement) text(prefix string) string {
	return strings.ReplaceAll(statements[s].sql, "~", prefix)
}

// marks returns n question marks.
func marks(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }
