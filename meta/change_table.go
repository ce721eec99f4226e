package meta

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
)

// CreateTable makes a table in state CREATING with version 1 of its
// configuration. The leader then adds its partitions and activates it.
func CreateTable(cfg *Config, id uuid.UUID) Func {
	return func(im *Image, now int64) (Change, error) {
		if t := im.TableByName(cfg.Name); t != nil {
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
// segments from the next ones on. The name cannot change.
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

// PauseTable lets no successor follow the table's IN_PROGRESS segments. To end
// those, RequestEnd.
func PauseTable(id uuid.UUID, why Pause) Func {
	why = Pause{Reason: plain(why.Reason), By: plain(why.By)}
	return func(im *Image, now int64) (Change, error) {
		t := im.Table(id)
		switch {
		case t == nil:
			return refuse(CodeUnknownTable, "no table %s", id)
		case t.State == TablePaused:
			return Change{}, nil
		case t.State != TableActive:
			return refuse(CodeTableNotActive, "table %q is %s", t.Name, t.State)
		}
		t = t.Clone()
		t.State, t.Pause = TablePaused, &why
		return upserts(t)
	}
}

// ResumeTable lets the table's partitions consume again. Each that is PAUSED
// needs ResumePartition.
func ResumeTable(id uuid.UUID) Func {
	return func(im *Image, now int64) (Change, error) {
		t := im.Table(id)
		switch {
		case t == nil:
			return refuse(CodeUnknownTable, "no table %s", id)
		case t.State == TableActive:
			return Change{}, nil
		case t.State != TablePaused:
			return refuse(CodeTableNotActive, "table %q is %s", t.Name, t.State)
		}
		t = t.Clone()
		t.State, t.Pause = TableActive, nil
		return upserts(t)
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

// plain makes text from outside fit for a record: UTF-8, and at most maxText.
func plain(text string) string {
	if len(text) > maxText {
		cut := maxText - len("…")
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	return strings.ToValidUTF8(text, "�")
}
