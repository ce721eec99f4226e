package meta

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// CreateTable makes a table in state CREATING with version 1 of its
// configuration. The leader then adds its partitions and activates it.
func CreateTable(cfg *Config, id uuid.UUID) Func {
	return func(im *Image, now int64) (Change, error) {
		if t := im.TableByName(cfg.Name); t != nil {
			if t.State == TableDeleting {
				return refuse(CodeTableExists, "table %q is being deleted; its name is free once it is gone", t.Name)
			}
			return refuse(CodeTableExists, "there is a table %q, and names are unique ignoring case", t.Name)
		}
		if err := cfg.Validate(); err != nil {
			return refuse(CodeInvalidConfig, "%v", err)
		}
		return sized(
			&Table{ID: id, Name: cfg.Name, State: TableCreating, ConfigVersion: 1, CreatedAt: now},
			&TableConfig{Table: id, Version: 1, Config: *cfg.Clone()},
		)
	}
}

// ActivateTable ends the creation of a table, once it has all of the
// partitions.
func ActivateTable(id uuid.UUID, partitions []int32) Func {
	return func(im *Image, now int64) (Change, error) {
		t := im.Table(id)
		switch {
		case t == nil:
			return refuse(CodeUnknownTable, "no table %s", id)
		case t.State == TableDeleting:
			return refuse(CodeTableDeleting, "table %q is being deleted", t.Name)
		case t.State != TableCreating:
			return Change{}, nil
		}
		for _, p := range partitions {
			if im.Partition(id, p) == nil {
				return refuse(CodeUnknownPartition, "table %q has no partition %d yet", t.Name, p)
			}
		}
		t = t.Clone()
		t.State, t.LastError = TableActive, ""
		return upserts(t)
	}
}

// SetTableError records why the last step of the table failed, or with an
// empty text that none did.
func SetTableError(id uuid.UUID, text string) Func {
	text = plain(text)
	return func(im *Image, now int64) (Change, error) {
		t := im.Table(id)
		if t == nil {
			return refuse(CodeUnknownTable, "no table %s", id)
		}
		if t.LastError == text {
			return Change{}, nil
		}
		t = t.Clone()
		t.LastError = text
		return upserts(t)
	}
}

// UpdateTableConfig gives the table a new version of its configuration, for its
// segments from the next ones on. The name cannot change, nor the stream.
func UpdateTableConfig(id uuid.UUID, cfg *Config) Func {
	return func(im *Image, now int64) (Change, error) {
		t := im.Table(id)
		switch {
		case t == nil:
			return refuse(CodeUnknownTable, "no table %s", id)
		case t.State == TableDeleting:
			return refuse(CodeTableDeleting, "table %q is being deleted", t.Name)
		case cfg.Name != t.Name:
			return refuse(CodeInvalidConfig, "name: the table is called %q, and cannot become %q", t.Name, cfg.Name)
		}
		if old := im.CurrentConfig(id).Stream; old != cfg.Stream {
			return refuse(CodeInvalidConfig, "stream: the offsets of %s %q mean nothing in another stream: make another table of it", old.Type, old.Path)
		}
		if err := cfg.Validate(); err != nil {
			return refuse(CodeInvalidConfig, "%v", err)
		}
		t = t.Clone()
		t.ConfigVersion++
		return sized(t, &TableConfig{Table: id, Version: t.ConfigVersion, Config: *cfg.Clone()})
	}
}

// PruneTableConfigs removes the versions of the table's configuration that are
// neither current nor named by a segment that is IN_PROGRESS.
func PruneTableConfigs(id uuid.UUID) Func {
	return func(im *Image, now int64) (Change, error) {
		t := im.Table(id)
		if t == nil {
			return refuse(CodeUnknownTable, "no table %s", id)
		}
		used := map[int]bool{t.ConfigVersion: true}
		for p := range im.Partitions(id) {
			if s := im.InProgress(p.PartitionKey()); s != nil {
				used[s.ConfigVersion] = true
			}
		}
		var c Change
		for v := range im.TableConfigs(id) {
			if !used[v.Version] {
				c.Removals = append(c.Removals, v.Key())
			}
		}
		return c, nil
	}
}

func upserts(records ...Record) (Change, error) { return Change{Upserts: records}, nil }

// sized is upserts of records with text from outside: refused here if they
// cannot be encoded, so that the log never meets them.
func sized(records ...Record) (Change, error) {
	for _, r := range records {
		_, err := EncodeRecord(r)
		var tooLarge *RecordTooLargeError
		switch {
		case errors.As(err, &tooLarge):
			return refuse(CodeRecordTooLarge, "%v", err)
		case err != nil:
			return refuse(CodeInvalidRecord, "%v", err)
		}
	}
	return upserts(records...)
}

// maxText bounds the text that records keep of errors and reasons, in bytes.
const maxText = 1 << 10

// plain makes text from outside fit for a record: UTF-8 without control characters, of
// at most maxText. JSON needs no more than two bytes for one of it then.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "�"))
	if len(text) <= maxText {
		return text
	}
	cut := maxText - len("…")
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
