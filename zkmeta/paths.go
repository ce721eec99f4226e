package zkmeta

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
)

// The tree below the root (docs/format/zookeeper.md draws it). The names of the
// record directories are here, those of the log in head.go.
const (
	idName        = "id"
	electionDir   = "election"
	logDir        = "log"
	headName      = "log/head"
	entriesDir    = "log/entries"
	clusterName   = "cluster"
	leaderName    = "leader"
	tablesDir     = "tables"
	configsDir    = "configs"
	partitionsDir = "partitions"
	segmentsDir   = "segments"
	tombstonesDir = "tombstones"
	nodesDir      = "nodes"
	jobsDir       = "jobs"
)

// fixedDirs are there from the founding of the tree on, parents first.
var fixedDirs = []string{
	electionDir, logDir, entriesDir, tablesDir, configsDir, partitionsDir, segmentsDir, tombstonesDir, nodesDir, jobsDir,
}

// bucketSeqs is how many sequence numbers share a directory: an answer that lists
// one stays below a tenth of what ZooKeeper sends.
const bucketSeqs = 1000

// recordPath is the znode of a record, below the root.
func recordPath(k meta.Key) string {
	switch k.Kind {
	case meta.KindCluster:
		return clusterName
	case meta.KindLeader:
		return leaderName
	}
	dir, name := recordDir(k), ""
	switch k.Kind {
	case meta.KindTable, meta.KindNode, meta.KindJob:
		name = k.Name
	case meta.KindPartition:
		name = strconv.Itoa(int(k.Partition))
	default:
		name = strconv.FormatInt(k.Num, 10)
	}
	return path.Join(dir, name)
}

// recordDir is the directory that a record's znode is in.
func recordDir(k meta.Key) string {
	switch k.Kind {
	case meta.KindTable:
		return tablesDir
	case meta.KindNode:
		return nodesDir
	}
	chain := dirsOf(k)
	return chain[len(chain)-1].path()
}

// directory is one that is there exactly while there are records below it. So the
// image says which directories there are, and none is left behind by whatever
// crashes.
type directory struct {
	kind      meta.Kind
	depth     int // below the directory of the kind: 1 table or bucket of jobs, 2 partition, 3 bucket
	table     uuid.UUID
	partition int32
	bucket    int64 // of sequence numbers, or the first byte of a job's id
}

// dirsOf lists the directories above a record that come and go, from the top down.
func dirsOf(k meta.Key) []directory {
	switch k.Kind {
	case meta.KindTableConfig, meta.KindPartition:
		return []directory{{kind: k.Kind, depth: 1, table: k.Table}}
	case meta.KindSegment, meta.KindTombstone:
		return []directory{
			{kind: k.Kind, depth: 1, table: k.Table},
			{kind: k.Kind, depth: 2, table: k.Table, partition: k.Partition},
			{kind: k.Kind, depth: 3, table: k.Table, partition: k.Partition, bucket: k.Num / bucketSeqs},
		}
	case meta.KindJob:
		id, err := uuid.Parse(k.Name)
		if err != nil {
			return []directory{{kind: k.Kind, depth: 1}} // no such record is ever written
		}
		return []directory{{kind: k.Kind, depth: 1, bucket: int64(id[0])}}
	}
	return nil
}

// kindDirs are the directories of the kinds whose records are not all in one.
var kindDirs = map[meta.Kind]string{
	meta.KindTableConfig: configsDir,
	meta.KindPartition:   partitionsDir,
	meta.KindSegment:     segmentsDir,
	meta.KindTombstone:   tombstonesDir,
	meta.KindJob:         jobsDir,
}

func (d directory) path() string {
	if d.kind == meta.KindJob {
		return fmt.Sprintf("%s/%02x", jobsDir, d.bucket)
	}
	p := kindDirs[d.kind] + "/" + d.table.String()
	if d.depth >= 2 {
		p += "/" + strconv.Itoa(int(d.partition))
	}
	if d.depth >= 3 {
		p += "/" + strconv.FormatInt(d.bucket, 10)
	}
	return p
}

// parsePath is the inverse of recordPath, the name of a table or node unchecked: the
// record inside has to agree anyway.
func parsePath(kind meta.Kind, rel string) (meta.Key, error) {
	k := meta.Key{Kind: kind}
	parts := strings.Split(rel, "/")
	last := parts[len(parts)-1]
	var err error
	number := func(i, bits int) (n int64) {
		if err == nil && i < len(parts) {
			n, err = strconv.ParseInt(parts[i], 10, bits)
		}
		return n
	}
	switch kind {
	case meta.KindTable, meta.KindNode:
		k.Name = last
	case meta.KindJob:
		var id uuid.UUID
		id, err = uuid.Parse(last)
		k.Name = id.String()
	case meta.KindTableConfig, meta.KindPartition, meta.KindSegment, meta.KindTombstone:
		if len(parts) > 1 {
			k.Table, err = uuid.Parse(parts[1])
		}
		switch kind {
		case meta.KindTableConfig:
			k.Num = number(2, 64)
		case meta.KindPartition:
			k.Partition = int32(number(2, 32))
		default:
			k.Partition, k.Num = int32(number(2, 32)), number(4, 64)
		}
	}
	if err != nil || recordPath(k) != rel {
		return k, &TreeError{Path: rel, Reason: fmt.Sprintf("no %s has such a path", kind)}
	}
	return k, nil
}
