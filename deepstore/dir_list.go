package deepstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// List reads the directories that can have some of the page, and no others: whoever
// pages through a table of a large store pays for that table.
func (d *dirStore) List(ctx context.Context, prefix, after string, limit int) ([]Info, error) {
	return dirCall(ctx, d, "list "+d.uri, func() ([]Info, error) {
		p := dirPage{dirStore: d, ctx: ctx, prefix: prefix, after: after, limit: limit}
		if err := p.tables(); err != nil {
			return nil, fmt.Errorf("deepstore: list %s: %w", d.uri, err)
		}
		return p.found, nil
	}, nil)
}

// dirPage is one List on its way, in the order of the keys.
type dirPage struct {
	*dirStore
	ctx           context.Context
	prefix, after string
	limit         int
	found         []Info
}

func (p *dirPage) full() bool { return len(p.found) >= p.limit }

func (p *dirPage) tables() error {
	return p.directories("", func(table string) error {
		if table == uploadsDir+"/" {
			return nil
		}
		return p.directories(table, p.partition)
	})
}

// directories visits those in dir whose keys can be on the page. dir, and what is
// visited, is the beginning of keys: it ends with a slash, or is empty.
func (p *dirPage) directories(dir string, visit func(dir string) error) error {
	if p.full() || p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	entries, err := p.fs.ReadDir(path.Join(p.dirStore.prefix, dir))
	if err != nil {
		return gone(err, dir)
	}
	var below []string
	for _, e := range entries {
		if name := dir + e.Name() + "/"; e.IsDir() && p.mayHave(name) {
			below = append(below, name)
		}
	}
	slices.Sort(below) // with the slash: "a-b/" comes before "a/", as their keys do
	for _, name := range below {
		if err := visit(name); err != nil {
			return err
		}
	}
	return nil
}

// mayHave reports whether keys that begin with dir can be on the page.
func (p *dirPage) mayHave(dir string) bool {
	if !strings.HasPrefix(dir, p.prefix) && !strings.HasPrefix(p.prefix, dir) {
		return false
	}
	return dir > p.after || strings.HasPrefix(p.after, dir)
}

func (p *dirPage) partition(dir string) error {
	if p.full() || p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	entries, err := p.fs.ReadDir(path.Join(p.dirStore.prefix, dir))
	if err != nil {
		return gone(err, dir)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		key := dir + e.Name()
		if p.full() {
			return nil
		}
		if key <= p.after || !strings.HasPrefix(key, p.prefix) {
			continue
		}
		if _, err := ParseKey(key); err != nil {
			continue // somebody else's
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted meanwhile
		}
		if err != nil {
			return err
		}
		p.found = append(p.found, Info{Key: key, SizeBytes: info.Size(), ModTime: info.ModTime()})
	}
	return nil
}

// gone is no error of a directory that was there a moment ago. That the store itself is
// not there is one: it has not lost its objects, it is away.
func gone(err error, dir string) error {
	if dir != "" && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
