package sqlite

import (
	"strings"

	"github.com/fairq/fairq/store/internal/columns"
)

// maxArgs is at least the number of arguments of any statement.
const maxArgs = 40

// A statement has a name for errors, and a text, in which ~ stands for the prefix.
type statement struct{ name, sql string }

// Here are the statements that neither come from a rows.Range (see scan.go) nor write a table (see
// tables.go).
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
	selectEnded = &statement{
		"ended",
		`SELECT ` + columns.Outcomes.Names(columns.Outcomes.All) +
			` FROM ~outcomes WHERE queue = ? AND written > ?`,
	}
	drops = []*statement{ // and those of the tables in tables.go
		{"drop", `DELETE FROM ~rounds WHERE queue = ?`},
		{"drop", `DELETE FROM ~queues WHERE id = ?`},
	}
)

// text returns the statement with the prefix.
func (s *statement) text(prefix string) string { return strings.ReplaceAll(s.sql, "~", prefix) }

// statsOf returns the statement that counts the tasks of all keys, or of some.
func statsOf(some string) *statement {
	return &statement{
		"key stats",
		`SELECT "key", sum(state = 1), sum(state = 2), sum(state = 3), sum(state ` +
			`= 4), sum(state = 5), ` +
			`coalesce(min(CASE WHEN state <= 2 THEN created END), 0) ` +
			`FROM ~tasks INDEXED BY ~tasks_line WHERE queue = ?1` + some +
			` GROUP BY "key" ORDER BY count(*) DESC`,
	}
}
