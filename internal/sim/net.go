package sim

import (
	"errors"
	"time"
)

// network carries messages between processes. It delays, drops, doubles and
// reorders them, and cuts links in one direction.
type network struct {
	w     *world
	rates netRates
	cut   map[link]bool
	// delayNext holds up the next message.
	delayNext time.Duration
}

type link struct{ from, to string }

type netRates struct {
	drop, double float64
	delayMin     time.Duration
	delayMax     time.Duration
	slow         float64 // share of messages that take up to slowMax
	slowMax      time.Duration
}

func newNetwork(w *world, rates netRates) *network {
	return &network{w: w, rates: rates, cut: map[link]bool{}}
}

// post carries one message. It arrives at the life that the receiver has then, if
// it has one.
func (n *network) post(from, to *process, label string, arrive func()) {
	w := n.w
	w.count.messages[label]++
	switch {
	case n.cut[link{from.name, to.name}]:
		w.count.faults["message over a cut link"]++
		return
	case w.chance(n.rates.drop):
		w.count.faults["message dropped"]++
		return
	}
	n.deliver(to, label, arrive)
	if w.chance(n.rates.double) {
		w.count.faults["message doubled"]++
		n.deliver(to, label, arrive)
	}
}

func (n *network) deliver(to *process, label string, arrive func()) {
	w := n.w
	d := w.between(n.rates.delayMin, n.rates.delayMax) + n.delayNext
	n.delayNext = 0
	if w.chance(n.rates.slow) {
		w.count.faults["message slow"]++
		d = w.between(n.rates.delayMax, n.rates.slowMax)
	}
	// Scheduled as the world's: which life takes it is decided on arrival.
	w.schedule(d, "net "+label+" to "+to.name, nil, func() {
		if to.up {
			w.schedule(0, label, to, arrive)
		}
	})
}

var errNoAnswer = errors.New("sim: no answer")

// call is a request and its answer. serve runs at the receiver and answers through
// reply, at once or later, and once; done runs at the caller, once: with the answer,
// or with errNoAnswer after the time-out. A request that arrives twice is served
// twice.
func call[A any](n *network, from, to *process, label string, timeout time.Duration, serve func(reply func(A)), done func(A, error)) {
	over, life := false, from.life
	finish := func(a A, err error) {
		if !over && from.life == life {
			over = true
			done(a, err)
		}
	}
	n.post(from, to, label, func() {
		serve(func(a A) {
			n.post(to, from, label+" answered", func() { finish(a, nil) })
		})
	})
	from.after(timeout, label+" timed out", func() {
		var none A
		finish(none, errNoAnswer)
	})
}
