package controller

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

const (
	// PageKeys is how many keys a page of a listing has: what S3 gives at once.
	PageKeys = 1000
	// missingMax bounds what one listing finds; the next one goes on from there.
	missingMax = 1000
	// beyondKeys sorts after every key.
	beyondKeys = "\x7f"
)

// Lister is what ListObjects needs of a deep store.
type Lister interface {
	List(ctx context.Context, prefix, after string, limit int) ([]deepstore.Info, error)
}

// ListObjects does what a ListDeepStore asks for. It decides nothing but what differs:
// of each segment both objects are to be there, with their sizes.
func ListObjects(ctx context.Context, a ListDeepStore, store Lister) (out ObjectsListed) {
	out = ObjectsListed{ID: a.ID, After: a.After}
	next, stop := iter.Pull(expectedObjects(a.Image, a.Table, a.Name, a.Store, a.After))
	defer stop()
	want, more := next()
	// skip goes on to the first object from key on; what it passes by is not there. It
	// reports false when that is as much as one listing may find.
	skip := func(key string) bool {
		for more && want.key < key {
			if len(out.Missing) >= missingMax {
				return false
			}
			out.miss(want)
			out.After = want.key
			want, more = next()
		}
		return true
	}
	for out.Pages < a.Pages {
		page, err := store.List(ctx, a.Name+"/", out.After, PageKeys)
		if err != nil {
			out.Err = fmt.Errorf("list %s/%s/: %w", a.Store, a.Name, err)
			return out
		}
		out.Pages++
		for _, there := range page {
			if !skip(there.Key) {
				return out
			}
			if more && want.key == there.Key {
				if want.size != there.SizeBytes {
					out.miss(want)
				}
				want, more = next()
			}
			out.After = there.Key
		}
		if len(page) < PageKeys {
			out.Done = skip(beyondKeys)
			return out
		}
	}
	return out
}

// miss notes a segment once, if one of its objects is not there or both are not.
func (out *ObjectsListed) miss(o expectedObject) {
	found := MissingCopy{Segment: o.segment, URI: o.uri}
	if n := len(out.Missing); n == 0 || out.Missing[n-1] != found {
		out.Missing = append(out.Missing, found)
	}
}

// expectedObject is one that a verified copy has.
type expectedObject struct {
	key     string
	size    int64
	segment meta.SegmentKey
	uri     string // of the copy
}

// expectedObjects yields what the image says is in a table's store, by key, after the
// key after. Keys have numbers without leading zeros: they are sorted as texts, one
// partition at a time.
func expectedObjects(im *meta.Image, table uuid.UUID, name, store, after string) iter.Seq[expectedObject] {
	return func(yield func(expectedObject) bool) {
		var dirs []string
		numbers := map[string]int32{}
		for p := range im.Partitions(table) {
			dir := name + "/" + strconv.Itoa(int(p.Partition)) + "/"
			dirs, numbers[dir] = append(dirs, dir), p.Partition
		}
		slices.Sort(dirs)
		for _, dir := range dirs {
			if dir < after && !strings.HasPrefix(after, dir) {
				continue // all of it is before
			}
			objects := expectedIn(im, table, numbers[dir], store)
			for _, o := range objects {
				if o.key > after && !yield(o) {
					return
				}
			}
		}
	}
}

// expectedIn are the objects of one partition, sorted.
func expectedIn(im *meta.Image, table uuid.UUID, partition int32, store string) []expectedObject {
	var all []expectedObject
	for s := range im.Segments(table, partition) {
		for _, l := range s.Locations {
			if l.URI == "" || !l.Verified {
				continue
			}
			key, err := deepstore.KeyOf(store, l.URI)
			if err != nil {
				continue // of a store that the table had before
			}
			o := expectedObject{key: key, size: s.SizeBytes, segment: s.SegmentKey(), uri: l.URI}
			all = append(all, o)
			o.key, o.size = deepstore.PiecesKey(key), segment.SidecarSize(s.SizeBytes)
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b expectedObject) int { return strings.Compare(a.key, b.key) })
	return all
}
