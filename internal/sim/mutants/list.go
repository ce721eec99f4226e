package main

// mutants are the bugs. The name says what each is; seeds is about three times what it
// took when the list was last measured (docs/simulation.md), or more.
var mutants = []mutant{
	{
		name:  "copy reported before fsync",
		edits: []edit{{"internal/vfs/publish.go", "if err := Sync(staged); err != nil {", "if err := error(nil); err != nil {"}},
		by:    []string{"I3"}, seeds: 10,
	},
	{
		name:  "renamed without fsync of the directory",
		edits: []edit{{"internal/vfs/publish.go", "if err := fs.SyncDir(to); err != nil {", "if err := error(nil); err != nil {"}},
		by:    []string{"I5", "I3"}, seeds: 10,
	},
	{
		name:  "copy set aside because the image does not name it",
		edits: []edit{{"internal/node/judge.go", "if !m.caughtUp || m.claimed[k] {\n\t\treturn nil\n\t}\n\ttomb :=", "if m.claimed[k] {\n\t\treturn nil\n\t}\n\ttomb :="}},
		by:    []string{"I3"}, seeds: 60,
	},
	{
		name:  "sealed file swept at start",
		edits: []edit{{"segment/store_scan.go", "if strings.HasSuffix(e.Name(), removedSuffix) {", "if strings.HasSuffix(e.Name(), removedSuffix) || strings.HasSuffix(e.Name(), fileSuffix) {"}},
		by:    []string{"I3"}, seeds: 10,
	},
	{
		name: "DISCARD for an uncommitted segment",
		edits: []edit{{"commit/completion.go", "\t\treturn Reply{Status: CatchUp, Offset: c.offset}\n\t}\n\treturn Reply{Status: Hold}",
			"\t\treturn Reply{Status: CatchUp, Offset: c.offset}\n\t}\n\treturn Reply{Status: Discard, Offset: c.offset}"}},
		by: []string{"I2"}, seeds: 10,
	},
	{
		name:  "rows freed at DISCARD",
		edits: []edit{{"commit/replica_settle.go", "s.downloading = true\n", "s.downloading = true\n\tr.do(FreeRows{})\n"}},
		by:    []string{"I3"}, seeds: 10,
	},
	{
		name:  "late commitEnd aborts another's round",
		edits: []edit{{"commit/completion.go", "case c.state == CommitterUploading && fromWinner:\n", "case c.state == CommitterUploading:\n"}},
		by:    []string{"round"}, seeds: 300,
	},
	{
		name:  "successor starts from the hand-over buffer",
		edits: []edit{{"internal/node/consumption_feed.go", "case !f.reaches(offset):", "case f.err != nil:"}},
		by:    []string{"I2"}, seeds: 60,
	},
	{
		name:  "two changes built from one version",
		edits: []edit{{"metalog/group.go", "c, err := fn(g.image, g.batch.Time)", "c, err := fn(g.base, g.batch.Time)"}},
		by:    []string{"I3"}, seeds: 45,
	},
	{
		name:  "log served before it is durable",
		edits: []edit{{"metalog/log.go", "if err := vfs.Sync(l.active); err != nil {\n\t\treturn 0, nil,", "if err := error(nil); err != nil {\n\t\treturn 0, nil,"}},
		by:    []string{"I5"}, seeds: 20,
	},
	{
		name: "config taken from the image",
		edits: []edit{{"internal/node/consumption.go",
			"t, cfg := c.image.Table(s.Table), c.image.TableConfig(s.Table, s.ConfigVersion)\n\tif t == nil || cfg == nil {\n\t\treturn \"\", nil\n\t}\n\treturn t.Name, &cfg.Config",
			"t, cfg := c.image.Table(s.Table), c.image.CurrentConfig(s.Table)\n\tif t == nil || cfg == nil {\n\t\treturn \"\", nil\n\t}\n\treturn t.Name, cfg"}},
		by: []string{"I2"}, seeds: 170,
	},
	{
		name:  "CATCH_UP demands the exact offset",
		edits: []edit{{"commit/replica.go", "if r.builder == builderOpen && r.next >= r.target {\n\t\t\tr.stop", "if r.builder == builderOpen && r.next == r.target {\n\t\t\tr.stop"}},
		by:    []string{"round"}, seeds: 350,
	},
	{
		name:  "download trusts its file by length",
		edits: []edit{{"internal/sim/transfer.go", "held[i] = string(block(there, i)) == string(block(want, i))", "held[i] = true"}},
		by:    []string{"I3"}, seeds: 110,
	},
	{
		name:  "head version not checked",
		edits: []edit{{"internal/sim/zookeeper.go", "if version != z.version {", "if version > z.version {"}},
		by:    []string{"I4"}, seeds: 500,
	},
	{
		name:  "epoch not taken from the head",
		edits: []edit{{"zkmeta/election.go", "return WriteLeader{try, e.version, e.head.Epoch + 1}", "return WriteLeader{try, e.version, e.epoch + 1}"}},
		by:    []string{"I6", "I4"}, seeds: 10,
	},
	{
		name:  "KEEP without comparing digests",
		edits: []edit{{"commit/replica_settle.go", "if own.info.Digest == r.settling.digest {", "if own.info.End == r.settling.end {"}},
		by:    []string{"I3"}, seeds: 60,
	},
	{
		name:  "upload counted without the leader's look",
		edits: []edit{{"internal/controller/checks.go", "case ev.Found:\n", "case ev.Found || ev.Err == nil:\n"}},
		by:    []string{"I3"}, seeds: 10,
	},
	{
		name: "winner needs exactly the replicas",
		edits: []edit{{"commit/completion.go",
			"everybody := len(live) >= len(ev.Facts.Replicas)-c.stops.count(ev.Facts.Replicas)",
			"everybody := len(live) == len(ev.Facts.Replicas)"}, {"commit/completion.go", "waited := everybody || now > c.firstConsumed+c.timing.pickAfter()", "waited := everybody"}},
		by: []string{"I6", "round"}, seeds: 70,
	},
	{
		name:  "stopped replica's offset kept",
		edits: []edit{{"commit/completion.go", "\tdelete(c.reports, m.Instance)\n", ""}},
		by:    []string{"round"}, seeds: 150,
	},
	{
		name: "release granted on copies of a replaced store",
		edits: []edit{
			{"meta/copies.go", "return n != nil && n.StoreID == l.StoreID", "return n != nil"},
			{"internal/controller/locations.go", "if at.node == keep.node && at != keep {", "if at.node == keep.node && keep.store == (uuid.UUID{}) {"},
		},
		by: []string{"I3"}, seeds: 550,
	},
	{
		name:  "epoch reused after a lost tail",
		edits: []edit{{"metalog/epoch.go", "return claimed + 1, nil", "return last + 1, nil"}},
		by:    []string{"I4", "I5"}, seeds: 800,
	},
	{
		name:  "CATCH_UP takes the row at its end",
		edits: []edit{{"commit/replica_feed.go", "case r.state != InitialConsuming && offset >= r.target:", "case r.state != InitialConsuming && offset > r.target:"}},
		by:    []string{"round", "I2", "I6"}, seeds: 300,
	},
	{
		name: "stale incarnation accepted at commit",
		edits: []edit{
			{"meta/change_commit.go", "case n.Incarnation != incarnation:\n", "case n.Incarnation < incarnation:\n"},
			{"commit/controller.go", "\t\tm.Incarnation != f.Incarnation,\n", ""},
		},
		by: []string{"I4"}, seeds: 60,
	},
	{
		name:  "image taken for caught up",
		edits: []edit{{"internal/node/machine.go", "m.caughtUp = m.incarnation != 0 && m.image.Next() >= m.goal && m.image.Epoch() >= m.epoch", "m.caughtUp = m.incarnation != 0"}},
		by:    []string{"I3"}, seeds: 40,
	},
	{
		name:  "differing build removed though copies are few",
		edits: []edit{{"internal/node/judge.go", "if copies < 2 && len(counted.DeepStore) == 0 {", "if copies < 0 {"}},
		by:    []string{"I3"}, seeds: 50,
	},
	{
		name:  "release granted on one other copy",
		edits: []edit{{"meta/change_locations.go", "nodes+deep >= min(Replication(l.im, s), 2)", "nodes+deep >= 0"}},
		by:    []string{"I3"}, seeds: 60,
	},
	{
		name:  "successor opened at another offset",
		edits: []edit{{"meta/change_commit.go", "p.NextOffset = c.Info.End\n", "p.NextOffset = c.Info.End - 1\n"}},
		by:    []string{"round", "I1", "I6", "I2"}, seeds: 20,
	},
	{
		name:  "commitEnd of a loser written",
		edits: []edit{{"commit/completion.go", "case c.state == CommitterUploading && fromWinner && m.Offset == c.offset:\n\t\tc.become(Committing)", "case c.state == CommitterUploading || c.state == Holding && m.Offset >= c.offset:\n\t\tc.become(Committing)"}},
		by:    []string{"round", "I2"}, seeds: 750,
	},
	{
		name: "leader answers past its deadline",
		edits: []edit{
			{"zkmeta/election.go", "return e.state == Leading && now < e.deadline", "return e.state == Leading"},
			{"zkmeta/election.go", "if e.state == Leading && now >= e.deadline {", "if false {"},
		},
		by: []string{"I4"}, seeds: 100,
	},
	{
		name:  "unknown append tried again",
		edits: []edit{{"metalog/writer_machine.go", "\tif err != nil {\n\t\tm.stop(fmt.Errorf(\"append batch %d: %w\", g.batch.Offset, err))\n\t\treturn\n", "\tif err != nil {\n\t\treturn\n"}},
		by:    []string{"I6"}, seeds: 150,
	},
	{
		name:  "retention by the leader's wall clock alone",
		edits: []edit{{"internal/controller/retention.go", "if skew.Abs() > clockSkewMax {", "if false {"}},
		by:    []string{"I3"}, seeds: 200,
	},
	{
		name:  "grace of a tombstone not waited for",
		edits: []edit{{"internal/node/judge.go", "case tomb != nil && tomb.Expired:", "case tomb != nil:"}},
		by:    []string{"I3"}, seeds: 20,
	},
	{
		name:  "snapshot of the newest batch that is stored",
		edits: []edit{{"metalog/follower_machine.go", "out = append(out, CutSnapshot{Image: m.staged[n].image})", "out = append(out, CutSnapshot{Image: m.newest()})"}},
		by:    []string{"snapshot", "I5"}, seeds: 30,
	},
	{
		name: "log reset before its snapshot is durable",
		edits: []edit{{"metalog/snapshotadopt.go", "if err := vfs.Publish(s.fs, f, part, snapshotFile(s.dir, ref.SnapshotID)); err != nil {",
			"if err := errors.Join(f.Close(), s.fs.Rename(part, snapshotFile(s.dir, ref.SnapshotID))); err != nil {"}},
		by: []string{"snapshot", "I5"}, seeds: 30,
	},
	{
		name:  "cleaning keeps one snapshot only",
		edits: []edit{{"metalog/snapshotstore.go", "const snapshotsKept = 2", "const snapshotsKept = 1"}},
		by:    []string{"snapshot", "I5"}, seeds: 30,
	},
	{
		name:  "log trimmed past the oldest snapshot",
		edits: []edit{{"metalog/snapshotclean.go", "\t\tto = min(to, s.id.EndOffset)\n", "\t\t_ = s\n"}},
		by:    []string{"snapshot", "I5"}, seeds: 30,
	},
	{
		name: "damaged snapshot loaded",
		edits: []edit{
			{"metalog/frame.go", "if got, want := crc32.Checksum(payload, castagnoli), binary.LittleEndian.Uint32(b[8:]); got != want {", "if got, want := uint32(0), uint32(0); got != want {"},
			{"metalog/snapshotreader.go", "if said != s.footer {", "if said.records != s.footer.records {"},
		},
		by: []string{"snapshot", "I5"}, seeds: 150,
	},
	{
		name: "image merged with a snapshot",
		edits: []edit{
			{"metalog/follower_snapshot.go", "\tim := m.loaded\n\tm.loaded = nil\n", `	im := m.loaded
	m.loaded = nil
	if im != nil {
		merged, mergeErr := meta.Restore(meta.Position{Next: im.Next(), Epoch: im.Epoch(), Time: im.LastTime()}, func(yield func(meta.Record) bool) {
			for r := range im.Records() {
				yield(r)
			}
			for r := range m.image.Records() {
				if im.Lookup(r.Key()) == nil {
					yield(r)
				}
			}
		})
		if mergeErr == nil {
			im = merged
		}
	}
`},
			{"meta/restore.go", "if v := d.im.check(!inPassing.passed()); len(v) > 0 {", "if v := d.im.check(!inPassing.passed()); false {"},
		},
		by: []string{"I5"}, seeds: 60,
	},
	{
		name:  "snapshot that is past the log's end does not empty it",
		edits: []edit{{"metalog/snapshotrecover.go", "return im, r.log.Reset(h.Position)", "return im, nil"}},
		by:    []string{"I3", "I5"}, seeds: 30,
	},
	{
		name: "snapshot cleaned while it is sent",
		edits: []edit{
			{"metalog/snapshotclean.go", "len(st.snapshots)-n > snapshotsKept && !st.snapshots[n].pinned && c.tooMuch(n)", "len(st.snapshots)-n > snapshotsKept && c.tooMuch(n)"},
			{"metalog/snapshotstore.go", "case s.pins.pinned(id, now):", "case false:"},
		},
		by: []string{"snapshot"}, seeds: 30,
	},
	{
		name:  "damaged snapshot is the last that is asked for",
		edits: []edit{{"metalog/snapshotter.go", "if err == nil || !errors.As(err, new(*CorruptionError)) {\n\t\t\treturn ref, h, err", "if err == nil || errors.As(err, new(*CorruptionError)) {\n\t\t\treturn ref, h, err"}},
		by:    []string{"I6"}, seeds: 100,
	},
	{
		name:  "deleted object is not looked for",
		edits: []edit{{"internal/controller/audits.go", "m.check(s, missing.URI)", "_ = s"}},
		by:    []string{"I6"}, seeds: 70,
	},
}
