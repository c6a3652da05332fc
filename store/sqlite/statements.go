package sqlite

import "strings"

// maxArgs is at least the number of arguments of any statement.
const maxArgs = 40

// A statement has a name for errors, and a text, in which ~ stands for the prefix.
type statement struct{ name, sql string }

// taskColumns are in the order of readTask.
const (
	taskColumns = `follower, id, "key", kind, unique_key, role, priority, weight, cost, ttr, ` +
		`max_attempts, created, deadline, ` +
		`"group", state, takeable, round, used, gap, returned, untried, front, hidden, place, since, ` +
		`consumer, attempts, ready_at, until, expires, latest, wake, err_code, err, metadata`
	withPayload = taskColumns + `, payload`
)

// The statements that are not made from a rows.Range (see scan.go).
//
// For LIMIT ? SQLite makes a new plan for each value, so at each call; for LIMIT 0 + ? it does
// not.
var (
	beginStatement    = &statement{"begin", `BEGIN IMMEDIATE`}
	commitStatement   = &statement{"commit", `COMMIT`}
	rollbackStatement = &statement{"roll back", `ROLLBACK`}
	dataVersion       = &statement{"look for changes", `PRAGMA data_version`}
	// there is none
	lockForWriting = &statement{"lock for writing", `DELETE FROM ~meta WHERE name = ''`}
	selectTable    = &statement{
		"look for tables",
		`SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?`,
	}
	selectMeta   = &statement{"read the version", `SELECT value FROM ~meta WHERE name = ?`}
	selectQueue  = &statement{"find a queue", `SELECT id, settings FROM ~queues WHERE name = ?`}
	selectQueues = &statement{
		"list queues",
		`SELECT name FROM ~queues WHERE name >= ? ORDER BY name LIMIT 0 + ?`,
	}
	insertQueue = &statement{"make a queue", `INSERT INTO ~queues (name, settings) VALUES (?, ?)`}
	selectHead  = &statement{
		"enter",
		`SELECT settings, number, paused, paused_keys, ready, delayed, taken, buried, held ` +
			`FROM ~queues WHERE id = ?`,
	}
	selectRounds = &statement{"enter", `SELECT priority, round FROM ~rounds WHERE queue = ?`}
	updateHead   = &statement{"save", `UPDATE ~queues SET number = ?, paused = ?, paused_keys = ?, ` +
		`ready = ?, delayed = ?, taken = ?, buried = ?, held = ? WHERE id = ?`}
	updateSettings = &statement{"save", `UPDATE ~queues SET settings = ? WHERE id = ?`}
	setRound       = &statement{
		"save",
		`INSERT OR REPLACE INTO ~rounds (queue, priority, round) VALUES (?, ?, ?)`,
	}
	insertTask = &statement{
		"insert",
		`INSERT INTO ~tasks (` + withPayload + `, queue) VALUES (0, ` + placeholders(36) + `)`,
	}
	insertPlain = &statement{
		"insert",
		`INSERT INTO ~tasks (` + withPayload +
			`, queue) VALUES (0, ?, ?, '', '', 0, ?, ?, ?, ?, ?, ?, 0, ` +
			`'', ?, ?, ?, ?, 0, 0, 0, ?, 0, ?, ?, 0, 0, ?, 0, 0, 0, 0, 0, NULL, '', ?, ?)`,
	}
	updateTask = &statement{
		"update",
		`UPDATE ~tasks SET "group" = ?, priority = ?, state = ?, takeable = ?, round = ?, used = ?, ` +
			`gap = ?, returned = ?, untried = ?, front = ?, hidden = ?, place = ?, since = ?, ` +
			`consumer = ?, follower = ?, attempts = ?, ready_at = ?, until = ?, expires = ?, latest = ?, ` +
			`wake = ?, err_code = ?, err = ? WHERE id = ?`,
	}
	takeTask = &statement{"take", `UPDATE ~tasks SET state = 3, takeable = 0, ` +
		`since = ?, consumer = ?, attempts = ?, until = ?, wake = ? WHERE id = ?`}
	deleteTask = &statement{"delete", `DELETE FROM ~tasks WHERE id = ?`}
	setKey     = &statement{
		"set key",
		`INSERT INTO ~keys (queue, "key", ready, delayed, taken, buried, held, paused, waits, until, ` +
			`hold, held_by, filled, limits) ` +
			`VALUES (` + placeholders(14) +
			`) ON CONFLICT (queue, "key") DO UPDATE SET ready = excluded.ready, ` +
			`delayed = excluded.delayed, taken = excluded.taken, buried = excluded.buried, ` +
			`held = excluded.held, ` +
			`paused = excluded.paused, waits = excluded.waits, until = excluded.until, ` +
			`hold = excluded.hold, held_by = excluded.held_by, filled = excluded.filled, ` +
			`limits = excluded.limits`,
	}
	deleteKey = &statement{"set key", `DELETE FROM ~keys WHERE queue = ? AND "key" = ?`}
	keyStats  = statsOf("")
	keyPaused = &statement{"key stats", `SELECT "key" FROM ~keys WHERE queue = ?1 AND paused`}

	pausedStats = statsOf(` AND "key" IN (` + keyPaused.sql + `)`)
	countKeys   = &statement{
		"keys",
		`WITH RECURSIVE k(k) AS (SELECT min("key") FROM ~tasks WHERE queue = ?1 AND ` +
			`"key" >= ?2 UNION ALL ` +
			`SELECT (SELECT min("key") FROM ~tasks WHERE queue = ?1 AND "key" > k) FROM k WHERE k ` +
			`IS NOT NULL LIMIT ?3) ` +
			`SELECT k FROM k WHERE k IS NOT NULL`,
	}
	setServed = &statement{
		"set served",
		`INSERT OR REPLACE INTO ~served (queue, priority, "key", round, used) VALUES (?, ?, ?, ?, ?)`,
	}
	setConsumer = &statement{
		"set consumer",
		`INSERT INTO ~consumers (queue, number, name, epoch, deadline) VALUES (?, ?, ?, ?, ?) ` +
			`ON CONFLICT (queue, number) DO UPDATE SET name = excluded.name, epoch = excluded.epoch, ` +
			`deadline = excluded.deadline`,
	}
	deleteConsumer = &statement{
		"delete a consumer",
		`DELETE FROM ~consumers WHERE queue = ? AND number = ?`,
	}
	setGroup = &statement{
		"set group",
		`INSERT OR REPLACE INTO ~groups (queue, name, started, cancelled, tasks, members) ` +
			`VALUES (` + placeholders(6) + `)`,
	}
	deleteGroup = &statement{"set group", `DELETE FROM ~groups WHERE queue = ? AND name = ?`}
	setOutcome  = &statement{
		"set outcome",
		`INSERT OR REPLACE INTO ~outcomes (queue, unique_key, id, result, ` +
			`err_code, err, until, number) ` +
			`VALUES (` + placeholders(8) + `)`,
	}
	deleteOutcome = &statement{
		"set outcome",
		`DELETE FROM ~outcomes WHERE queue = ? AND unique_key = ?`,
	}
	selectEnded = &statement{
		"ended",
		`SELECT id, result, err_code, err FROM ~outcomes WHERE queue = ? AND number > ?`,
	}
	insertHistory = &statement{
		"add history",
		`INSERT INTO ~history (id, queue, "key", kind, unique_key, attempts, created, finished, ` +
			`result, err_code, err, ` +
			`until, payload) VALUES (` + placeholders(13) + `)`,
	}

	sweepServed = &statement{
		"sweep served",
		`DELETE FROM ~served WHERE queue = ?1 AND priority = ?2 AND "key" IN ` +
			`(SELECT "key" FROM ~served WHERE queue = ?1 AND priority = ?2 AND round < ?3 LIMIT 0 + ?4)`,
	}
	sweepOutcomes = &statement{
		"sweep outcomes",
		`DELETE FROM ~outcomes WHERE queue = ?1 AND unique_key IN (SELECT unique_key FROM ~outcomes ` +
			`WHERE queue = ?1 AND until > 0 AND until < ?2 ORDER BY until LIMIT 0 + ?3)`,
	}
	sweepHistory = &statement{
		"sweep history",
		`DELETE FROM ~history WHERE id IN (SELECT id FROM ~history WHERE queue = ? AND ` +
			`until > 0 AND until < ? ` +
			`ORDER BY until LIMIT 0 + ?)`,
	}

	dropTasks   = &statement{"drop", `DELETE FROM ~tasks WHERE id BETWEEN ? AND ?`}
	dropHistory = &statement{"drop", `DELETE FROM ~history WHERE id BETWEEN ? AND ?`}
	dropOthers  = [...]*statement{
		{"drop", `DELETE FROM ~keys WHERE queue = ?`},
		{"drop", `DELETE FROM ~served WHERE queue = ?`},
		{"drop", `DELETE FROM ~consumers WHERE queue = ?`},
		{"drop", `DELETE FROM ~groups WHERE queue = ?`},
		{"drop", `DELETE FROM ~outcomes WHERE queue = ?`},
		{"drop", `DELETE FROM ~rounds WHERE queue = ?`},
		{"drop", `DELETE FROM ~queues WHERE id = ?`},
	}
)

// text returns the statement with the prefix.
func (s *statement) text(prefix string) string { return strings.ReplaceAll(s.sql, "~", prefix) }

// placeholders returns n question marks.
func placeholders(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }

// statsOf returns the statement that counts the tasks of all keys, or of some.
func statsOf(some string) *statement {
	return &statement{
		"key stats",
		`SELECT "key", sum(state = 1), sum(state = 2), sum(state = 3), sum(state ` +
			`= 4), sum(state = 5), ` +
			`coalesce(min(CASE WHEN state <= 2 THEN created END), 0) ` +
			`FROM ~tasks INDEXED BY ~tasks_key WHERE queue = ?1` + some +
			` GROUP BY "key" ORDER BY count(*) DESC`,
	}
}
