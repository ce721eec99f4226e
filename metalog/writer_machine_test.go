package metalog

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/meta"
)

func newWriterMachine(epoch int64, im *meta.Image) *WriterMachine {
	return NewWriterMachine(WriterMachineConfig{
		Image: im, Cluster: testCluster, Leader: meta.Leader{Epoch: epoch, Term: termOf(epoch), Controller: "c", URL: "http://c"},
	})
}

// openWriter is a machine whose epoch is open and that has nothing to do.
func openWriter(t testing.TB) *WriterMachine {
	t.Helper()
	m := newWriterMachine(1, meta.Empty())
	wantActions(t, m.Step(5, OpenEpoch{}), "append 0 of 2")
	wantActions(t, m.Step(5, Appended{}), "committed 0 of 2 first")
	return m
}

// wantActions compares what is to be done, one line an action.
func wantActions(t testing.TB, got []WriterAction, want ...string) {
	t.Helper()
	var lines []string
	for _, a := range got {
		lines = append(lines, showWriterAction(a))
	}
	if !slices.Equal(lines, want) {
		t.Fatalf("it does:\n%s\nwant:\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}

func showWriterAction(a WriterAction) string {
	switch a := a.(type) {
	case AppendBatch:
		return fmt.Sprintf("append %d of %d", a.Batch.Offset, len(a.Batch.Upserts)+len(a.Batch.Removals))
	case BatchCommitted:
		s := fmt.Sprintf("committed %d of %d", a.Batch.Offset, a.Changes)
		if a.First {
			s += " first"
		}
		return s
	case Answered:
		if a.Err != nil {
			return fmt.Sprintf("answer %d: %s", a.ID, errorKind(a.Err))
		}
		return fmt.Sprintf("answer %d: batch %d, image %d", a.ID, a.Result.Offset, a.Result.Image.Next())
	case WriterStopped:
		return fmt.Sprintf("stopped: %v", a.Err)
	}
	return fmt.Sprintf("%T", a)
}

func errorKind(err error) string {
	for name, kind := range map[string]error{"unknown": ErrUnknown, "poisoned": ErrPoisoned, "stopped": ErrStopped} {
		if errors.Is(err, kind) {
			return name
		}
	}
	if r := (*meta.Refusal)(nil); errors.As(err, &r) {
		return r.Code
	}
	return err.Error()
}

func TestWriterMachineGroupsBehindTheAppendInFlight(t *testing.T) {
	m := openWriter(t)
	wantActions(t, m.Step(5, Submitted{ID: 1, Func: create(1)}), "append 1 of 1")
	wantActions(t, m.Step(5, Submitted{ID: 2, Func: create(2)}))
	wantActions(t, m.Step(5, Submitted{ID: 3, Func: create(1)}), "answer 3: JOB_EXISTS")
	wantActions(t, m.Step(5, Submitted{ID: 4, Func: create(4)}))
	wantActions(t, m.Step(5, Submitted{ID: 5, Func: nothing}))
	if m.Image().Next() != 1 {
		t.Fatal("an image before its batch")
	}
	wantActions(t, m.Step(5, Appended{}), "committed 1 of 1", "answer 1: batch 1, image 2", "append 2 of 2")
	wantActions(t, m.Step(5, Appended{}), "committed 2 of 2",
		"answer 2: batch 2, image 3", "answer 4: batch 2, image 3", "answer 5: batch 2, image 3")
	wantActions(t, m.Step(5, Submitted{ID: 6, Func: nothing}), "answer 6: batch 2, image 3")
}

func TestWriterMachineHoldsTheAppendForWhatFollows(t *testing.T) {
	m := openWriter(t)
	wantActions(t, m.Step(5, Submitted{ID: 1, Func: put(1, 0), More: true}))
	wantActions(t, m.Step(5, Submitted{ID: 2, Func: put(2, 0), More: true}))
	wantActions(t, m.Step(5, Flush{}), "append 1 of 2")
	wantActions(t, m.Step(5, Submitted{ID: 3, Func: put(3, 0), More: true}))
	wantActions(t, m.Step(5, Flush{}))
	wantActions(t, m.Step(5, Appended{}), "committed 1 of 2", "answer 1: batch 1, image 2", "answer 2: batch 1, image 2", "append 2 of 1")
}

// large is a change of which two do not fit into one batch.
func large(n int64) meta.Func {
	return func(*meta.Image, int64) (c meta.Change, err error) {
		for i := range int64(6) {
			c.Upserts = append(c.Upserts, job(10*n+i, 50<<10))
		}
		return c, nil
	}
}

func TestWriterMachineIsFullBehindFourBatches(t *testing.T) {
	m := openWriter(t)
	id := uint64(0)
	for ; !m.Full(); id++ {
		m.Step(5, Submitted{ID: id, Func: large(int64(id))})
	}
	if id != groupsMax+1 {
		t.Fatalf("full after %d batches", id)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Fatal("it takes one more")
			}
		}()
		m.Step(5, Submitted{ID: 99, Func: nothing})
	}()
	wantActions(t, m.Step(5, Appended{}), "committed 1 of 1", "answer 0: batch 1, image 2", "append 2 of 6")
	if m.Full() {
		t.Fatal("it stays full")
	}
}

func TestWriterMachineStops(t *testing.T) {
	t.Run("at once when nothing is accepted", func(t *testing.T) {
		m := openWriter(t)
		wantActions(t, m.Step(5, Stopping{}), "stopped: <nil>")
		wantActions(t, m.Step(5, Stopping{}))
		wantActions(t, m.Step(5, Submitted{ID: 1, Func: put(1, 0)}), "answer 1: stopped")
	})
	t.Run("before the epoch", func(t *testing.T) {
		wantActions(t, newWriterMachine(1, meta.Empty()).Step(5, Stopping{}), "stopped: <nil>")
	})
	t.Run("after what is accepted", func(t *testing.T) {
		m := openWriter(t)
		m.Step(5, Submitted{ID: 1, Func: put(1, 0)})
		m.Step(5, Submitted{ID: 2, Func: put(2, 0)})
		wantActions(t, m.Step(5, Stopping{}))
		if !m.Full() {
			t.Fatal("it takes more")
		}
		wantActions(t, m.Step(5, Submitted{ID: 3, Func: put(3, 0)}), "answer 3: stopped")
		wantActions(t, m.Step(5, Appended{}), "committed 1 of 1", "answer 1: batch 1, image 2", "append 2 of 1")
		wantActions(t, m.Step(5, Appended{}), "committed 2 of 1", "answer 2: batch 2, image 3", "stopped: <nil>")
	})
}

func TestWriterMachineIsPoisonedByAFailedAppend(t *testing.T) {
	for _, stopping := range []bool{false, true} {
		m := openWriter(t)
		m.Step(5, Submitted{ID: 1, Func: put(1, 0)})
		m.Step(5, Submitted{ID: 2, Func: put(2, 0)})
		m.Step(5, Submitted{ID: 3, Func: nothing})
		if stopping {
			m.Step(5, Stopping{})
		}
		wantActions(t, m.Step(5, Appended{errors.New("gone")}),
			"answer 1: unknown", "answer 2: unknown", "answer 3: unknown", "stopped: append batch 1: gone")
		wantActions(t, m.Step(5, Submitted{ID: 4, Func: put(4, 0)}), "answer 4: poisoned")
		if m.Image().Next() != 1 {
			t.Fatal("the image has moved")
		}
	}
}

func TestWriterMachineThatCannotOpenItsEpochStops(t *testing.T) {
	m := openWriter(t)
	again := newWriterMachine(1, m.Image())
	out := again.Step(5, OpenEpoch{})
	if len(out) != 1 || out[0].(WriterStopped).Err == nil || !again.Full() {
		t.Fatalf("it does %v", out)
	}
}

// A batch that cannot be sealed poisons the writer too, but the append in flight is
// waited for: its goroutine still has the log.
func TestWriterMachineWaitsForTheAppendBeforeItFails(t *testing.T) {
	for _, appended := range []error{nil, errors.New("gone")} {
		m := openWriter(t)
		m.Step(5, Submitted{ID: 1, Func: put(1, 0)})
		m.Step(5, Submitted{ID: 2, Func: large(2)})
		m.groups[1].base = meta.Empty() // what should never be
		wantActions(t, m.Step(5, Submitted{ID: 3, Func: large(3)}), "answer 3: unknown")
		wantActions(t, m.Step(5, Submitted{ID: 4, Func: put(4, 0)}), "answer 4: poisoned")
		wantActions(t, m.Step(5, Stopping{}))
		out := m.Step(5, Appended{appended})
		if len(out) != 3 {
			t.Fatalf("it does %v", out)
		}
		wantActions(t, out[:2], "answer 1: unknown", "answer 2: unknown")
		if err := out[2].(WriterStopped).Err; err == nil || errors.Is(err, appended) && appended != nil {
			t.Fatalf("stopped: %v", err)
		}
	}
	m := openWriter(t)
	m.Step(5, Submitted{ID: 1, Func: put(1, 0), More: true})
	m.groups[0].base = meta.Empty()
	if out := m.Step(5, Flush{}); len(out) != 2 || out[1].(WriterStopped).Err == nil {
		t.Fatalf("nothing in flight: it does %v", out)
	}
}

// Whatever is submitted, and however appends end: one append at a time, of
// consecutive offsets; everybody is answered once, and well only if what they asked
// for is in a committed batch; the batches replay to the image; and the same events
// bring the same actions.
func TestWriterMachineHoldsItsInvariants(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m, twin := newWriterMachine(1, meta.Empty()), newWriterMachine(1, meta.Empty())
		var (
			flying   *meta.Batch
			replayed = meta.Empty()
			open     = map[uint64]int64{} // submissions without an answer, and their job; -1: none
			next     = uint64(1)
			stopped  bool
		)
		step := func(ev WriterEvent) {
			wall := rapid.Int64Range(0, 50).Draw(rt, "wall")
			out, same := m.Step(wall, ev), twin.Step(wall, ev)
			if len(out) != len(same) {
				rt.Fatalf("%d actions, then %d", len(out), len(same))
			}
			for i, a := range out {
				if stopped {
					if _, ok := a.(Answered); !ok {
						rt.Fatalf("%T after the end", a)
					}
				}
				if showWriterAction(a) != showWriterAction(same[i]) {
					rt.Fatalf("%s, then %s", showWriterAction(a), showWriterAction(same[i]))
				}
				switch a := a.(type) {
				case AppendBatch:
					if flying != nil || a.Batch.Offset != replayed.Next() {
						rt.Fatalf("append %d at %d, in flight %v", a.Batch.Offset, replayed.Next(), flying != nil)
					}
					if n, err := meta.EncodeBatch(a.Batch); err != nil || len(n) > groupBytesMax {
						rt.Fatalf("a batch of %d bytes, %v", len(n), err)
					}
					flying = a.Batch
				case BatchCommitted:
					im, err := replayed.Apply(a.Batch)
					if err != nil || a.Batch != flying || a.Image != m.Image() || a.First != (a.Batch.Offset == 0) {
						rt.Fatalf("committed %d: %v", a.Batch.Offset, err)
					}
					replayed, flying = im, nil
				case Answered:
					n, asked := open[a.ID]
					if !asked {
						rt.Fatalf("%d is answered twice", a.ID)
					}
					delete(open, a.ID)
					if a.Err == nil && (a.Result.Offset >= replayed.Next() || n >= 0 && replayed.Job(jobID(n)) == nil) {
						rt.Fatalf("%d has batch %d, which is not committed", a.ID, a.Result.Offset)
					}
				case WriterStopped:
					stopped = true
				}
			}
		}
		step(OpenEpoch{})
		more := false
		for range rapid.IntRange(0, 60).Draw(rt, "steps") {
			kind := rapid.IntRange(0, 19).Draw(rt, "event")
			switch {
			case m.state == writerWriting && m.Full() && flying != nil, kind < 5 && flying != nil && !more:
				var err error
				if rapid.IntRange(0, 19).Draw(rt, "fails") == 0 {
					err = errors.New("gone")
				}
				if err != nil {
					flying = nil
				}
				step(Appended{err})
			case m.state == writerWriting && m.Full(), more && kind < 5:
				more = false
				step(Flush{})
			case kind == 19 && !more:
				step(Stopping{})
			default:
				n := rapid.Int64Range(0, 9).Draw(rt, "job")
				s := Submitted{ID: next, More: rapid.Bool().Draw(rt, "more")}
				next, more = next+1, s.More
				open[s.ID] = n
				switch kind % 4 {
				case 0:
					s.Func, open[s.ID] = nothing, -1
				case 1:
					s.Func, open[s.ID] = large(n), 10*n
				default:
					s.Func = create(n)
				}
				step(s)
			}
		}
		step(Flush{})
		step(Stopping{})
		for flying != nil {
			step(Appended{})
		}
		if len(open) > 0 || !stopped {
			rt.Fatalf("%d were never answered, stopped %v", len(open), stopped)
		}
		if a, b := slices.Collect(replayed.Records()), slices.Collect(m.Image().Records()); !reflect.DeepEqual(a, b) {
			rt.Fatal("the batches make another image")
		}
	})
}
