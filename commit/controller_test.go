package commit

import (
	"fmt"
	"testing"
)

// TestWaitingRepeatsAreBounded: a sender that repeats its end while the write
// hangs does not pile up; each message is still answered exactly once.
func TestWaitingRepeatsAreBounded(t *testing.T) {
	s := newControllerScript()
	replayInputs(s, []string{"replicas s1", "writes pend", "t1 c(s1,40)", "t2 cs(s1,40)"})
	answers := map[Ticket]Status{}
	note := func(actions []Action) {
		for _, a := range actions {
			if r, ok := a.(Respond); ok {
				if _, twice := answers[r.Ticket]; twice {
					t.Fatalf("ticket %d is answered twice", r.Ticket)
				}
				answers[r.Ticket] = r.Reply.Status
			}
		}
	}
	end := Message{
		Kind: SegmentCommitEnd, Table: testTable, Partition: testKey.Partition, Seq: testKey.Seq, Segment: testSegment,
		Instance: "s1", Incarnation: 1, StreamEpoch: "0", Offset: 40, Rows: 40, Digest: digestOf("d40"),
	}
	facts := s.facts
	facts.Incarnation = 1
	const sent, first = 3 * maxWaiting, 100
	for i := range sent {
		note(s.c.Step(0, Received{Ticket(first + i), end, facts}))
	}
	note(s.c.Step(0, WriteDone{testKey, first, Written}))

	count := map[Status]int{}
	for _, status := range answers {
		count[status]++
	}
	if got := fmt.Sprint(count); got != fmt.Sprint(map[Status]int{CommitSuccess: maxWaiting, Failed: sent - maxWaiting}) {
		t.Errorf("answers %s", got)
	}
}

// TestNothingIsRememberedOfWhatIsOver: a leader of many segments keeps entries
// only of those that are completing, or have stopped replicas.
func TestNothingIsRememberedOfWhatIsOver(t *testing.T) {
	s := newControllerScript()
	replayInputs(s, []string{"t1 st(s3,20,disk)", "t5 c(s1,20)", "t6 c(s2,20)", "t7 cs(s2,20)", "t8 ce(s2,20)", "t9 c(s1,20)", "t10 st(s3,20,disk)"})
	if n := len(s.c.segments); n != 0 {
		t.Errorf("%d entries are left", n)
	}
	s = newControllerScript()
	replayInputs(s, []string{"t1 cs(s1,20)", "t2 ce(s1,20)", "unknown", "t3 c(s1,20)"})
	if n := len(s.c.segments); n != 0 {
		t.Errorf("%d entries of messages that create none", n)
	}
}
