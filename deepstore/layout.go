package deepstore

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/shoalstore/shoal/segment"
)

// A segment has two objects, named by its content so that a late or second
// upload can never replace other bytes:
//
//	<table>/<partition>/<name>-<first 16 hex digits of the digest>.parquet
//	<table>/<partition>/<name>-<the same>.pieces
//
// The names are those of the node's own store. Keys are relative to the store's
// URI; a location's URI is URI(store URI, key of the .parquet).

// DataKey is the key of the segment called name (as segment.Name prints it)
// whose file has digest d.
func DataKey(name string, d segment.Digest) (string, error) {
	n, err := segment.ParseName(name)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrBadKey, err)
	}
	return path.Join(n.Table, strconv.Itoa(int(n.Partition)), segment.FileName(name, d)), nil
}

// PiecesKey is the key of the sidecar beside a data key.
func PiecesKey(dataKey string) string {
	return strings.TrimSuffix(dataKey, ".parquet") + ".pieces"
}

// ParsedKey is what a key says.
type ParsedKey struct {
	Name segment.Name
	// Short is the digest's first 16 hex digits.
	Short  string
	Pieces bool // the sidecar's key
}

// ParseKey reads a key of either object. Anything else is ErrBadKey, and no
// store touches it: keys come from outside.
func ParseKey(key string) (ParsedKey, error) {
	bad := func(why string) (ParsedKey, error) {
		return ParsedKey{}, fmt.Errorf("%w %q: %s", ErrBadKey, clip(key), why)
	}
	parts := strings.Split(key, "/")
	if len(parts) != 3 {
		return bad("want <table>/<partition>/<file>")
	}
	parse, pieces := segment.ParseFileName, false
	if strings.HasSuffix(key, ".pieces") {
		parse, pieces = segment.ParseSidecarName, true
	}
	name, short, err := parse(parts[2])
	if err != nil {
		return bad(err.Error())
	}
	if parts[0] != name.Table || parts[1] != strconv.Itoa(int(name.Partition)) {
		return bad("table or partition is not that of the file's name")
	}
	return ParsedKey{Name: name, Short: short, Pieces: pieces}, nil
}

// checkPut refuses an upload under a key that names other content.
func checkPut(key string, size int64, d segment.Digest) error {
	k, err := ParseKey(key)
	if err != nil {
		return err
	}
	if size <= 0 {
		return fmt.Errorf("%w: %s: %d bytes", ErrBadSource, key, size)
	}
	if !k.Pieces && k.Short != d.Short() {
		return fmt.Errorf("%w %q: it names digest %s…, not %s", ErrBadKey, key, k.Short, d)
	}
	return nil
}

// URI is the address of an object in a location.
func URI(store, key string) string { return strings.TrimSuffix(store, "/") + "/" + key }

// KeyOf is the key in an object's URI, if it lies in the store of that URI.
func KeyOf(store, uri string) (key string, err error) {
	key, ok := strings.CutPrefix(uri, strings.TrimSuffix(store, "/")+"/")
	if !ok {
		return "", fmt.Errorf("%w: %q is not in %s", ErrBadKey, clip(uri), store)
	}
	_, err = ParseKey(key)
	return key, err
}

func clip(s string) string {
	const most = 300
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
