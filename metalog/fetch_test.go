package metalog

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// ends makes the epochs of a leader from "epoch: end" pairs.
func ends(pairs ...int64) (epochs []EpochEnd) {
	for i := 0; i < len(pairs); i += 2 {
		epochs = append(epochs, EpochEnd{Epoch: pairs[i], End: pairs[i+1], Term: termOf(pairs[i])})
	}
	return epochs
}

func snap(endOffset, epoch int64) *SnapshotRef {
	return &SnapshotRef{SnapshotID: SnapshotID{EndOffset: endOffset, Epoch: epoch}, SizeBytes: 1}
}

// ask is a follower's position, its term that of a well-behaved leader.
func ask(offset, lastEpoch int64) Position {
	p := Position{Offset: offset, LastEpoch: lastEpoch}
	if lastEpoch > 0 {
		p.LastTerm = termOf(lastEpoch)
	}
	return p
}

func (a Answer) String() string {
	switch a.Kind {
	case AnswerSnapshot:
		return fmt.Sprintf("%d: snapshot (%d,%d)", a.Row, a.Snapshot.EndOffset, a.Snapshot.Epoch)
	case AnswerDiverging:
		return fmt.Sprintf("%d: diverging (%d,%d)", a.Row, a.Diverging.Epoch, a.Diverging.EndOffset)
	case AnswerFrames:
		return fmt.Sprintf("%d: frames", a.Row)
	}
	return "broken"
}

func TestFetchTable(t *testing.T) {
	// The leaders of the table. Numbers in the names of the cases are those of the
	// scenarios of METALOG §5.
	var (
		empty    = FetchState{}
		plain    = FetchState{HighWatermark: 9, Epochs: ends(1, 3, 3, 6, 5, 9)}                                                    // scenario 8
		two      = FetchState{HighWatermark: 6, Epochs: ends(2, 3, 4, 6), Earliest: snap(3, 2), Latest: snap(3, 2)}                // scenario 5
		trimmed  = FetchState{LogStart: 3, HighWatermark: 6, Epochs: ends(2, 3, 4, 6), Earliest: snap(3, 2), Latest: snap(3, 2)}   // 6, 7
		same     = FetchState{LogStart: 3, HighWatermark: 6, Epochs: ends(2, 6), Earliest: snap(3, 2), Latest: snap(3, 2)}         // no change of epoch since
		several  = FetchState{LogStart: 4, HighWatermark: 12, Epochs: ends(2, 6, 4, 12), Earliest: snap(4, 2), Latest: snap(8, 4)} // 1, 2
		allGone  = FetchState{LogStart: 6, HighWatermark: 6, Epochs: ends(4, 6), Earliest: snap(6, 4), Latest: snap(6, 4)}         // nothing follows the snapshot
		whole    = FetchState{HighWatermark: 6, Epochs: ends(2, 3, 4, 6), Earliest: snap(6, 4), Latest: snap(6, 4)}                // 3
		broken   = FetchState{LogStart: 3, HighWatermark: 6, Epochs: ends(2, 3, 4, 6)}                                             // no snapshot, LSO > 0
		noTerm   = func(offset, lastEpoch int64) Position { return Position{Offset: offset, LastEpoch: lastEpoch} }                // an old follower
		withTerm = func(offset, lastEpoch, term int64) Position {
			return Position{offset, lastEpoch, uuid.UUID(termOf(term))}
		} // another leader of that epoch
	)
	for _, c := range []struct {
		name string
		ask  Position
		st   FetchState
		want string
	}{
		// Row 1: a new follower takes the snapshot, even if the whole log is there.
		{"row 1, 3 whole log and a snapshot", ask(0, 0), whole, "1: snapshot (6,4)"},
		{"row 1, 1 two snapshots: the larger by epoch and offset", ask(0, 0), several, "1: snapshot (8,4)"},
		{"row 1, trimmed", ask(0, 0), trimmed, "1: snapshot (3,2)"},
		{"row 1, lastEpoch is not looked at", ask(0, 4), whole, "1: snapshot (6,4)"},
		// Row 2.
		{"row 2, an empty log", ask(0, 0), empty, "2: frames"},
		{"row 2, a whole log", ask(0, 0), plain, "2: frames"},
		{"row 2, lastEpoch is not looked at", ask(0, 7), plain, "2: frames"},
		// Row 3.
		{"row 3, 2 below the log start", ask(1, 2), several, "3: snapshot (8,4)"},
		{"row 3, just below it", ask(3, 2), several, "3: snapshot (8,4)"},
		{"row 3, whatever the epoch", ask(2, 9), trimmed, "3: snapshot (3,2)"},
		{"row 3, everything is in the snapshot", ask(5, 4), allGone, "3: snapshot (6,4)"},
		{"broken, offset 0", ask(0, 0), broken, "broken"},
		{"broken, below the log start", ask(2, 2), broken, "broken"},
		// Row 4.
		{"row 4, 6 a newer epoch at the log start", ask(3, 3), trimmed, "4: snapshot (3,2)"},
		{"row 4, an older one", ask(3, 1), trimmed, "4: snapshot (3,2)"},
		{"row 4, the epoch that follows there", ask(3, 4), trimmed, "4: snapshot (3,2)"},
		{"row 4, at the end of an empty log", ask(6, 3), allGone, "4: snapshot (6,4)"},
		{"row 4, several: the latest is named", ask(4, 1), several, "4: snapshot (8,4)"},
		// Row 5.
		{"row 5, 7 behind the snapshot's epoch, log trimmed", ask(6, 1), trimmed, "5: snapshot (3,2)"},
		{"row 5, in the middle of the log", ask(4, 1), trimmed, "5: snapshot (3,2)"},
		{"row 5, beyond the end", ask(9, 1), trimmed, "5: snapshot (3,2)"},
		{"row 5, judged by the earliest snapshot", ask(10, 1), several, "5: snapshot (8,4)"},
		{"row 5, no epoch at all", ask(5, 0), trimmed, "5: snapshot (3,2)"},
		// Row 6.
		{"row 6, 5 an epoch that never was", ask(4, 3), two, "6: diverging (2,3)"},
		{"row 6, 7 log whole: no such epoch", ask(6, 1), two, "6: diverging (0,0)"},
		{"row 6, 8 long before the end", ask(6, 2), plain, "6: diverging (1,3)"},
		{"row 6, an epoch that never was, above all", ask(9, 7), plain, "6: diverging (5,9)"},
		{"row 6, between two", ask(7, 4), plain, "6: diverging (3,6)"},
		{"row 6, the epoch ends before the offset", ask(4, 1), plain, "6: diverging (1,3)"},
		{"row 6, one past its end", ask(7, 3), plain, "6: diverging (3,6)"},
		{"row 6, beyond the high watermark", ask(10, 5), plain, "6: diverging (5,9)"},
		{"row 6, batches but no epoch", ask(2, 0), plain, "6: diverging (0,0)"},
		{"row 6, anything of an empty log", ask(1, 1), empty, "6: diverging (0,0)"},
		{"row 6, another leader of the same epoch", withTerm(9, 5, 6), plain, "6: diverging (5,9)"},
		{"row 6, another leader of an older epoch", withTerm(3, 1, 2), plain, "6: diverging (1,3)"},
		{"row 6, another leader, at the log start", withTerm(3, 2, 9), trimmed, "6: diverging (2,3)"},
		{"row 6, after several snapshots", ask(9, 3), several, "6: diverging (2,6)"},
		// Row 7.
		{"row 7, 6 at the log start", ask(3, 2), trimmed, "7: frames"},
		{"row 7, at the end", ask(9, 5), plain, "7: frames"},
		{"row 7, at the end of an epoch", ask(3, 1), plain, "7: frames"},
		{"row 7, within an epoch", ask(2, 1), plain, "7: frames"},
		{"row 7, at the second batch", ask(1, 1), plain, "7: frames"},
		{"row 7, without a term to compare", noTerm(9, 5), plain, "7: frames"},
		{"row 7, at the end of a trimmed log", ask(6, 4), trimmed, "7: frames"},
		{"row 7, at the end of an empty log", ask(6, 4), allGone, "7: frames"},
		{"row 7, the snapshot's epoch goes on", ask(4, 2), same, "7: frames"},
		{"row 7, between two snapshots", ask(6, 2), several, "7: frames"},
		{"row 7, on the latest snapshot", ask(8, 4), several, "7: frames"},
		{"row 7, a snapshot at 0 does not hinder who has more", ask(4, 4), whole, "7: frames"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Decide(c.ask, c.st).String(); got != c.want {
				t.Fatalf("got %s, want %s", got, c.want)
			}
		})
	}
}

// model is a leader's log as a plain list, of which position i says epoch and term of
// batch i. It answers by looking, not by the table.
type model struct {
	batches  []EpochEnd // End unused
	logStart int64
}

func (m *model) state() FetchState {
	st := FetchState{LogStart: m.logStart, HighWatermark: int64(len(m.batches))}
	for i, b := range m.batches {
		if int64(i) >= m.logStart-1 {
			st.Epochs = extendEpochs(st.Epochs, Position{Offset: int64(i) + 1, LastEpoch: b.Epoch, LastTerm: b.Term})
		}
	}
	if m.logStart > 0 {
		s := snap(m.logStart, m.batches[m.logStart-1].Epoch)
		st.Earliest, st.Latest = s, s
	}
	return st
}

// isPrefix tells whether the first n batches of two logs are the same.
func isPrefix(a, b []EpochEnd, n int64) bool {
	if n > int64(len(a)) || n > int64(len(b)) {
		return false
	}
	for i := range n {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// drawLog draws a log of batches in rising epochs, on top of those given. Every epoch
// has one leader in the whole world, so the second one's are other numbers (it drew
// even or odd), or, with forged, the same numbers with other terms: a restored backup.
func drawLog(t *rapid.T, on []EpochEnd, odd bool, forged bool, label string) []EpochEnd {
	epoch := int64(0)
	if len(on) > 0 {
		epoch = on[len(on)-1].Epoch
	}
	out := append([]EpochEnd(nil), on...)
	for range rapid.IntRange(0, 4).Draw(t, label+" epochs") {
		epoch += int64(rapid.IntRange(1, 3).Draw(t, label+" step"))
		term := termOf(epoch)
		switch isOdd := epoch%2 == 1; {
		case forged && odd:
			term = termOf(epoch + 1000)
		case !forged && isOdd != odd:
			epoch++
			term = termOf(epoch)
		}
		for range rapid.IntRange(1, 3).Draw(t, label+" batches") {
			out = append(out, EpochEnd{Epoch: epoch, Term: term})
		}
	}
	return out
}

// A follower that obeys the answers must come to hold the leader's log, never be given
// frames on top of something else, and never be told to cut what it shares.
func TestFollowersOfTheTableConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		forged := rapid.Bool().Draw(t, "forged")
		common := drawLog(t, nil, false, false, "common")
		leader := &model{batches: drawLog(t, common, false, forged, "leader")}
		follower := drawLog(t, common[:rapid.IntRange(0, len(common)).Draw(t, "shared")], true, forged, "follower")
		leader.logStart = int64(rapid.IntRange(0, len(leader.batches)).Draw(t, "log start"))
		shared := int64(0)
		for isPrefix(follower, leader.batches, shared+1) {
			shared++
		}
		st := leader.state()
		for steps := 0; ; steps++ {
			if steps > len(leader.batches)+len(follower)+5 {
				t.Fatalf("no end: leader %v, follower %v", leader.batches, follower)
			}
			at := Position{Offset: int64(len(follower))}
			if at.Offset > 0 {
				last := follower[at.Offset-1]
				at.LastEpoch, at.LastTerm = last.Epoch, last.Term
			}
			switch a := Decide(at, st); a.Kind {
			case AnswerFrames:
				if !isPrefix(follower, leader.batches, at.Offset) {
					t.Fatalf("%v: frames from %d for a follower that holds %v of %v", a, at.Offset, follower, leader.batches)
				}
				if at.Offset < leader.logStart {
					t.Fatalf("%v: frames from %d, the log starts at %d", a, at.Offset, leader.logStart)
				}
				if at.Offset == st.HighWatermark {
					return
				}
				follower = append(follower, leader.batches[at.Offset])
			case AnswerSnapshot:
				if at.Offset > 0 && at.Offset >= leader.logStart && isPrefix(follower, leader.batches, at.Offset) {
					t.Fatalf("%v: a snapshot for a follower that could have frames from %d", a, at.Offset)
				}
				follower = append([]EpochEnd(nil), leader.batches[:a.Snapshot.EndOffset]...)
			case AnswerDiverging:
				to := int64(len(follower))
				for to > 0 && follower[to-1].Epoch > a.Diverging.Epoch {
					to--
				}
				to = min(to, a.Diverging.EndOffset)
				if to == int64(len(follower)) { // the same epoch of another leader: cut all of it
					for last := follower[to-1]; to > 0 && follower[to-1] == last; {
						to--
					}
				}
				if !forged && to < shared && shared >= leader.logStart {
					t.Fatalf("%v: cut to %d, but %d batches are shared: %v and %v", a, to, shared, follower, leader.batches)
				}
				follower = follower[:to]
			default:
				t.Fatalf("answer %v", a)
			}
		}
	})
}

func TestSnapshotIDsRoundTripAndSort(t *testing.T) { // METALOG §5, 1
	rapid.Check(t, func(t *rapid.T) {
		id := SnapshotID{rapid.Int64Min(0).Draw(t, "end"), rapid.Int64Range(0, 9999999999).Draw(t, "epoch")}
		if got, err := ParseSnapshotID(id.String()); err != nil || got != id {
			t.Fatalf("%s reads as %v, %v", id, got, err)
		}
	})
	ordered := []SnapshotID{{100, 1}, {200, 1}, {50, 2}, {50, 3}, {60, 3}}
	for i, a := range ordered {
		for j, b := range ordered {
			if got, want := a.Compare(b) < 0, i < j; got != want {
				t.Errorf("%s < %s: %v", a, b, got)
			}
		}
	}
	for _, s := range []string{"", "1-1", "00000000000000000001_0000000001", "0000000000000000000x-0000000001", "00000000000000000001-000000000+1",
		"99999999999999999999-0000000001", "00000000000000000001-00000000011", "+0000000000000000001-0000000001"} {
		if id, err := ParseSnapshotID(s); err == nil {
			t.Errorf("%q reads as %v", s, id)
		}
	}
}
