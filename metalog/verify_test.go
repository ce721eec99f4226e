package metalog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
)

// sameImages is VerifyConfig.Same of these tests.
func sameImages(want, got *meta.Image) error {
	encode := func(im *meta.Image) (all []byte) {
		for r := range im.Records() {
			data, err := meta.EncodeRecord(r)
			if err != nil {
				panic(err)
			}
			all = append(all, data...)
		}
		return all
	}
	if !bytes.Equal(encode(want), encode(got)) {
		return errors.New("they differ")
	}
	return nil
}

func verify(t testing.TB, disk vfs.FS) *Verified {
	t.Helper()
	v, err := Verify(VerifyConfig{FS: untouched(t, disk), LogDir: "log", SnapshotsDir: SnapshotsDir, Same: sameImages})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// findings are the kinds and files of what was found.
func findings(v *Verified) (out []string) {
	for _, f := range v.Findings {
		out = append(out, string(f.Kind)+" "+f.File)
	}
	return out
}

func TestVerifyOfGoodDirectories(t *testing.T) {
	batches := batchesOf(run{1, 3}, run{2, 3}, run{5, 4})
	for name, test := range map[string]struct {
		dataDir
		compared []int64 // ends of the snapshots that the log has to give too
	}{
		"nothing":                    {dataDir{0, 0, nil}, nil},
		"no snapshot":                {dataDir{0, 9, nil}, nil},
		"snapshots within the log":   {dataDir{0, 9, []int{2, 6}}, []int64{2, 6}},
		"at its start":               {dataDir{2, 9, []int{2, 6}}, []int64{6}},
		"at its end":                 {dataDir{0, 9, []int{9}}, []int64{9}},
		"an empty log where it ends": {dataDir{9, 9, []int{9}}, nil},
		"the log trails the oldest":  {dataDir{3, 9, []int{4, 8}}, []int64{8}},
		"one too old beside":         {dataDir{6, 9, []int{2, 8, 9}}, []int64{9}},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			test.on(t, disk, batches)
			v := verify(t, disk)
			if v.Damaged() || len(v.Findings) > 0 {
				t.Errorf("found %+v", v.Findings)
			}
			if v.Start != int64(test.start) || v.End.Offset != int64(test.end) || v.Batches != int64(test.end-test.start) {
				t.Errorf("%+v", v)
			}
			if test.end > 0 && (v.Cluster != testCluster || v.End != after(batches[test.end-1])) {
				t.Errorf("%+v", v)
			}
			var compared []int64
			for _, s := range v.Snapshots {
				if s.Records != imageAfter(t, batches[:s.EndOffset]...).Len() {
					t.Errorf("%+v", s)
				}
				if s.Compared {
					compared = append(compared, s.EndOffset)
				}
			}
			if len(v.Snapshots) != len(test.snapshots) || !slices.Equal(compared, test.compared) {
				t.Errorf("compared %v of %+v, want %v", compared, v.Snapshots, test.compared)
			}
		})
	}
}

// TestVerifyNoticesEachFlippedBit: there is no byte in a data directory that may be another.
func TestVerifyNoticesEachFlippedBit(t *testing.T) {
	disk := vfs.NewMem()
	dataDir{0, 3, []int{2}}.on(t, disk, batchesOf(run{1, 1}, run{2, 2}))
	if err := RaiseEpoch(disk, 2); err != nil {
		t.Fatal(err)
	}
	files := []string{EpochFile}
	for _, dir := range []string{"log", SnapshotsDir} {
		for _, file := range fileNames(t, disk, dir) {
			files = append(files, dir+"/"+file)
		}
	}
	for _, file := range files {
		data := readFile(t, disk, file)
		for i := range data {
			one := disk.Clone()
			putFile(t, one, file, flip(i)(slices.Clone(data)))
			v := verify(t, one)
			if !v.Damaged() || !slices.ContainsFunc(v.Findings, func(f Finding) bool { return f.File == file && f.IsDamage() }) {
				t.Errorf("%s with byte %d flipped: found %+v", file, i, v.Findings)
			}
		}
	}
}

// TestVerifyNoticesEachCut: only the last append may be cut short.
func TestVerifyNoticesEachCut(t *testing.T) {
	disk := vfs.NewMem()
	l := openLog(t, disk, 0)
	batches := batchesOf(run{1, 4})
	appendAll(t, l, batches...)
	storeOf(t, disk, batches, 3)
	for _, dir := range []string{"log", SnapshotsDir} {
		for _, file := range fileNames(t, disk, dir) {
			file = dir + "/" + file
			data := readFile(t, disk, file)
			for cut := range data {
				one := disk.Clone()
				putFile(t, one, file, data[:cut])
				v := verify(t, one)
				if dir == SnapshotsDir || cut < logHeaderSize {
					if !v.Damaged() {
						t.Errorf("%s cut to %d: found %+v", file, cut, v.Findings)
					}
					continue
				}
				ends := frameEnds(t, data[logHeaderSize:])
				held, whole := slices.BinarySearch(append([]int{0}, ends...), cut-logHeaderSize)
				if !whole {
					held--
				}
				torn := slices.ContainsFunc(v.Findings, func(f Finding) bool { return f.Kind == TornAppend && f.File == file })
				if torn == whole {
					t.Errorf("%s cut to %d: found %+v", file, cut, v.Findings)
				}
				past := slices.ContainsFunc(v.Findings, func(f Finding) bool { return f.Kind == Leftover })
				if v.End.Offset != int64(held) || past != (held < 3) || v.Damaged() {
					t.Errorf("%s cut to %d: the log ends at %d, want %d; found %+v", file, cut, v.End.Offset, held, v.Findings)
				}
			}
		}
	}
}

func TestVerifyFindings(t *testing.T) {
	batches := batchesOf(run{1, 3}, run{2, 5})
	logFile := func(base int64) string { return logFileName("log", base) }
	snapshot := func(end int64) string {
		epoch := int64(1)
		if end > 3 {
			epoch = 2
		}
		return snapshotFile(SnapshotsDir, SnapshotID{end, epoch})
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	foreign := func(n int) *meta.Image {
		all := batchesOf(run{1, 3}, run{2, 5})
		all[0].Upserts[0] = &meta.Cluster{ID: uuid.MustParse("00000000-0000-4000-8000-0000000000c2"), FormatVersion: meta.FormatVersion}
		return imageAfter(t, all[:n]...)
	}
	other := func(n int) *meta.Image {
		all := batchesOf(run{1, 3}, run{2, 5})
		all[1].Upserts = append(all[1].Upserts, job(100, 5))
		return imageAfter(t, all[:n]...)
	}
	stranger := func(n int) *meta.Image {
		all := batchesOf(run{1, 2}, run{2, 6})
		for _, b := range all[2:] {
			b.Term = termOf(99)
		}
		all[2].Upserts[0] = &meta.Leader{Epoch: 2, Term: termOf(99), Controller: "c", URL: "http://c"}
		return imageAfter(t, all[:n]...)
	}
	replace := func(im func(int) *meta.Image, end int) func(vfs.FS) {
		return func(disk vfs.FS) {
			must(disk.RemoveAll(SnapshotsDir))
			writeSnapshot(t, disk, im(end))
		}
	}
	for name, test := range map[string]struct {
		dataDir
		change func(disk vfs.FS)
		want   []string
		says   string
	}{
		"a file in the middle is missing": {dataDir{0, 8, []int{6}}, func(disk vfs.FS) { must(disk.Remove(logFile(4))) },
			[]string{"damagedLog " + logFile(5)}, "the log before it ends at offset 4"},
		"the first file is missing": {dataDir{0, 8, nil}, func(disk vfs.FS) { must(disk.Remove(logFile(0))) },
			[]string{"missingSnapshot " + logFile(1)}, "before offset 1"},
		"the first file is missing, a snapshot stands for it": {dataDir{0, 8, []int{2}}, func(disk vfs.FS) { must(disk.Remove(logFile(0))) },
			nil, ""},
		"a file under another name": {dataDir{0, 8, nil}, func(disk vfs.FS) { must(disk.Rename(logFile(7), logFile(9))) },
			[]string{"damagedLog " + logFile(9)}, "its header says that it begins at offset 7"},
		"the log is gone beside its epoch": {dataDir{0, 8, nil}, func(disk vfs.FS) {
			must(RaiseEpoch(disk, 2))
			must(disk.RemoveAll("log"))
		}, []string{"damagedLog log"}, "holds no log"},
		"damage in two places": {dataDir{0, 8, nil}, func(disk vfs.FS) {
			for _, base := range []int64{2, 5} {
				putFile(t, disk, logFile(base), flip(logHeaderSize+20)(readFile(t, disk, logFile(base))))
			}
		}, []string{"damagedLog " + logFile(2), "damagedLog " + logFile(5)}, "the next good batch is 3: 1 before it"},
		"another cluster's snapshot":              {dataDir{0, 8, []int{4}}, replace(foreign, 4), []string{"strangeSnapshot " + snapshot(4)}, "it is of cluster"},
		"another cluster's snapshot past the log": {dataDir{0, 2, nil}, replace(foreign, 4), []string{"strangeSnapshot " + snapshot(4)}, "it is of cluster"},
		"a snapshot with another record":          {dataDir{0, 8, []int{4}}, replace(other, 4), []string{"otherImage " + snapshot(4)}, "they differ"},
		"a snapshot of another term":              {dataDir{0, 8, []int{4}}, replace(stranger, 4), []string{"strangeSnapshot " + snapshot(4)}, "term"},
		"a snapshot past the log's end":           {dataDir{0, 2, []int{4}}, nil, []string{"leftover " + snapshot(4)}, "past the end 2"},
		"an older snapshot past the log's end":    {dataDir{0, 6, nil}, replace(func(int) *meta.Image { return imageAfter(t, batchesOf(run{1, 8})...) }, 8), []string{"strangeSnapshot " + snapshotFile(SnapshotsDir, SnapshotID{8, 1})}, "past the end"},
		"only snapshots that end before the log":  {dataDir{6, 8, []int{2, 4}}, nil, []string{"missingSnapshot " + logFile(6)}, "before offset 6"},
		"a piece list of another file": {dataDir{0, 8, []int{4, 6}}, func(disk vfs.FS) {
			putFile(t, disk, sidecarFile(SnapshotsDir, SnapshotID{4, 2}), readFile(t, disk, sidecarFile(SnapshotsDir, SnapshotID{6, 2})))
		}, []string{"damagedPieces " + sidecarFile(SnapshotsDir, SnapshotID{4, 2})}, "which is good"},
		"no piece list": {dataDir{0, 8, []int{4}}, func(disk vfs.FS) { must(disk.Remove(sidecarFile(SnapshotsDir, SnapshotID{4, 2}))) }, nil, ""},
		"an epoch file that says less than the log": {dataDir{0, 8, nil}, func(disk vfs.FS) { must(RaiseEpoch(disk, 1)) }, []string{"damagedEpoch epoch"}, "says epoch 1, and the log holds epoch 2"},
		"a log of a newer format": {dataDir{0, 8, nil}, func(disk vfs.FS) {
			data := readFile(t, disk, logFile(3))
			data[8] = 9
			putFile(t, disk, logFile(3), data)
		}, []string{"newerFormat " + logFile(3)}, "format version 9"},
		"what a crash leaves": {dataDir{0, 8, []int{4}}, func(disk vfs.FS) {
			for _, name := range []string{logFile(8) + tmpSuffix, logFile(0) + deletedSuffix, snapshot(8) + partSuffix, snapshot(2) + deletedSuffix, snapshot(1) + corruptSuffix} {
				putFile(t, disk, name, []byte("x"))
			}
		}, []string{"setAside " + snapshot(1) + corruptSuffix, "leftover " + snapshot(2) + deletedSuffix, "leftover " + snapshot(8) + partSuffix, "leftover " + logFile(0) + deletedSuffix, "leftover " + logFile(8) + tmpSuffix}, ""},
		"a log that was being emptied": {dataDir{0, 2, []int{4}}, func(disk vfs.FS) {
			putFile(t, disk, logFile(4)+resetSuffix, encodeLogHeader(after(batches[3])))
		}, []string{"leftover " + logFile(4) + resetSuffix}, "begins anew"},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			test.on(t, disk, batches)
			if test.change != nil {
				test.change(disk)
			}
			v := verify(t, disk)
			if got := findings(v); !slices.Equal(got, test.want) {
				t.Errorf("found %+v, want %q", v.Findings, test.want)
			}
			if !strings.Contains(fmt.Sprint(v.Findings), test.says) {
				t.Errorf("found %+v; %q is not said", v.Findings, test.says)
			}
		})
	}
}

// Behind damage in the middle of a file the log is read on.
func TestVerifyReadsOnBehindDamage(t *testing.T) {
	batches := batchesOf(run{1, 10})
	disk := vfs.NewMem()
	appendAll(t, openLog(t, disk, 0), batches...)
	storeOf(t, disk, batches, 2, 7, 9)
	name := logFileName("log", 0)
	data := readFile(t, disk, name)
	ends := frameEnds(t, data[logHeaderSize:])
	putFile(t, disk, name, flip(logHeaderSize+ends[3]+30)(flip(logHeaderSize+ends[4]+5)(data)))
	v := verify(t, disk)
	if got := findings(v); !slices.Equal(got, []string{"damagedLog " + name}) || v.Findings[0].Offset != int64(logHeaderSize+ends[3]) ||
		!strings.Contains(v.Findings[0].Problem, "the next good batch is 6: 2 before it") {
		t.Errorf("found %+v", v.Findings)
	}
	if v.Batches != 8 || v.End.Offset != 10 {
		t.Errorf("%+v", v)
	}
	var compared []bool
	for _, s := range v.Snapshots {
		compared = append(compared, s.Compared)
	}
	// The one behind the hole cannot be compared, the one after it can.
	if !slices.Equal(compared, []bool{true, false, true}) {
		t.Errorf("compared: %v", compared)
	}
}

// What a running process changes while it is read is not taken for damage: the second
// look sees the directory as it is.
func TestVerifyLooksTwiceWhereAProcessRuns(t *testing.T) {
	disk := vfs.NewMem()
	appendAll(t, openLog(t, disk, 0), batchesOf(run{1, 3})...)
	name := logFileName("log", 0)
	data := readFile(t, disk, name)
	for _, running := range []bool{false, true} {
		putFile(t, disk, name, flip(100)(slices.Clone(data)))
		reads := 0
		seen := vfs.WithFaults(disk, func(op vfs.Op) error {
			if op.Kind == vfs.OpOpen && op.Name == name {
				if reads++; reads == 2 {
					putFile(t, disk, name, data)
				}
			}
			return nil
		})
		v, err := Verify(VerifyConfig{FS: seen, LogDir: "log", SnapshotsDir: SnapshotsDir, Same: sameImages, Running: running})
		if err != nil || v.Damaged() == running {
			t.Errorf("running %t: found %+v, %v", running, v, err)
		}
	}
}

func TestVerifyWantsTheEpochWhereTheLogIsLed(t *testing.T) {
	disk := vfs.NewMem()
	appendAll(t, openLog(t, disk, 0), batchesOf(run{1, 3})...)
	cfg := VerifyConfig{FS: disk, LogDir: "log", SnapshotsDir: SnapshotsDir, Same: sameImages, Led: true}
	if v, err := Verify(cfg); err != nil || !slices.Equal(findings(v), []string{"damagedEpoch epoch"}) {
		t.Errorf("%+v, %v", v, err)
	}
	if err := RaiseEpoch(disk, 7); err != nil {
		t.Fatal(err)
	}
	if v, err := Verify(cfg); err != nil || v.Damaged() {
		t.Errorf("%+v, %v", v, err)
	}
}

// A disk that cannot be read is no damage: nothing is known.
func TestVerifyTellsADiskThatCannotBeRead(t *testing.T) {
	disk := vfs.NewMem()
	dataDir{0, 4, []int{2}}.on(t, disk, batchesOf(run{1, 4}))
	broken := errors.New("input/output error")
	for _, file := range []string{logFileName("log", 2), snapshotFile(SnapshotsDir, SnapshotID{2, 1}), sidecarFile(SnapshotsDir, SnapshotID{2, 1})} {
		failing := vfs.WithFaults(disk, func(op vfs.Op) error {
			if op.Kind == vfs.OpRead && op.Name == file {
				return broken
			}
			return nil
		})
		if _, err := Verify(VerifyConfig{FS: failing, LogDir: "log", SnapshotsDir: SnapshotsDir, Same: sameImages}); !errors.Is(err, broken) {
			t.Errorf("%s: %v", file, err)
		}
	}
}
