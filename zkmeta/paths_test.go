package zkmeta

import (
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
)

// namesAPath reports whether the key's name is one that meta lets through: of
// tables, nodes and jobs it is the last part of a path. Numbers are not negative.
func namesAPath(k meta.Key) bool {
	switch k.Kind {
	case meta.KindTable, meta.KindNode:
		return meta.CheckNodeID(k.Name) == nil // the same letters as a table's
	case meta.KindPartition, meta.KindSegment, meta.KindTombstone, meta.KindTableConfig:
		return k.Partition >= 0 && k.Num >= 0
	}
	return true
}

// keys generates keys as they occur.
func keys() *rapid.Generator[meta.Key] {
	return rapid.Custom(func(t *rapid.T) meta.Key {
		k := meta.Key{Kind: rapid.Map(rapid.IntRange(int(meta.KindCluster), int(meta.KindJob)), func(i int) meta.Kind { return meta.Kind(i) }).Draw(t, "kind")}
		switch k.Kind {
		case meta.KindTable, meta.KindNode:
			k.Name = rapid.StringMatching(`[A-Za-z0-9]([A-Za-z0-9_.-]{0,12}[A-Za-z0-9])?`).Draw(t, "name")
		case meta.KindJob:
			k.Name = metatest.UUID().Draw(t, "id").String()
		case meta.KindTableConfig:
			k.Table, k.Num = metatest.UUID().Draw(t, "table"), rapid.Int64Min(0).Draw(t, "version")
		case meta.KindPartition:
			k.Table, k.Partition = metatest.UUID().Draw(t, "table"), rapid.Int32Min(0).Draw(t, "partition")
		case meta.KindSegment, meta.KindTombstone:
			k.Table, k.Partition = metatest.UUID().Draw(t, "table"), rapid.Int32Min(0).Draw(t, "partition")
			k.Num = rapid.Int64Min(0).Draw(t, "seq")
		}
		return k
	})
}

func TestPathsAndKeysAreInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := keys().Draw(t, "key")
		rel := recordPath(k)
		if got, err := parsePath(k.Kind, rel); err != nil || got != k {
			t.Fatalf("%s is at %s, which is of %s: %v", k, rel, got, err)
		}
		if why := pathFault("/" + rel); why != "" {
			t.Fatalf("%s %s", rel, why)
		}
		if path.Dir(rel) != recordDirOf(k) {
			t.Fatalf("%s is not in %s", rel, recordDirOf(k))
		}
		for kind := meta.KindCluster; kind <= meta.KindJob; kind++ {
			if got, err := parsePath(kind, rel); err == nil && kind != k.Kind {
				t.Fatalf("%s is of %s, and of %s", rel, k, got)
			}
		}
	})
}

// recordDirOf is where a record must be: at the root, or where recordDir says.
func recordDirOf(k meta.Key) string {
	if k.Kind == meta.KindCluster || k.Kind == meta.KindLeader {
		return "."
	}
	return recordDir(k)
}

func TestGarbagePathsAreNamed(t *testing.T) {
	id := uuid.MustParse("0a000000-0000-4000-8000-000000000001").String()
	for rel, kind := range map[string]meta.Kind{
		"":                                 meta.KindTable,
		"tables":                           meta.KindTable,
		"tables/":                          meta.KindTable,
		"tables/a/b":                       meta.KindTable,
		"tables/..":                        meta.KindTable,
		"nodes/.":                          meta.KindNode,
		"node/n1":                          meta.KindNode,
		"cluster/x":                        meta.KindCluster,
		"leaders":                          meta.KindLeader,
		"jobs/" + id:                       meta.KindJob,
		"jobs/0b/" + id:                    meta.KindJob,
		"jobs/0A/" + id:                    meta.KindJob,
		"jobs/00/garbage":                  meta.KindJob,
		"jobs/0a/" + strings.ToUpper(id):   meta.KindJob,
		"configs/" + id:                    meta.KindTableConfig,
		"configs/" + id + "/one":           meta.KindTableConfig,
		"configs/" + id + "/01":            meta.KindTableConfig,
		"configs/garbage/1":                meta.KindTableConfig,
		"partitions/" + id + "/-0":         meta.KindPartition,
		"partitions/" + id + "/+1":         meta.KindPartition,
		"partitions/" + id + "/4294967296": meta.KindPartition,
		"partitions/{" + id + "}/1":        meta.KindPartition,
		"segments/" + id + "/0/0":          meta.KindSegment,
		"segments/" + id + "/0/0/1000":     meta.KindSegment,
		"segments/" + id + "/0/1/999":      meta.KindSegment,
		"segments/" + id + "/0/0/1/2":      meta.KindSegment,
		"tombstones/" + id + "/x/0/1":      meta.KindTombstone,
		"segments//" + id + "/0/0/1":       meta.KindSegment,
		"partitions/" + id + "/1/":         meta.KindPartition,
		"configs/" + id + "/1\x00":         meta.KindTableConfig,
		"tombstones/" + id + "/0/00/1":     meta.KindTombstone,
		"segments/" + id + "/0/0/ 1":       meta.KindSegment,
		"segments/" + id + "/0/0/0x1":      meta.KindSegment,
		"segments/" + id + "/0/0/1_0":      meta.KindSegment,
	} {
		_, err := parsePath(kind, rel)
		var fault *TreeError
		if !errors.As(err, &fault) || fault.Path != rel {
			t.Errorf("%s %q: %v", kind, rel, err)
		}
	}
}
