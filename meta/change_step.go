package meta

// A bulk change is one flip of a state, and then as many steps as it takes, each a
// change of its own: PauseNext, ResumeNext, DeleteNext, DrainNext. A step looks for
// what is left to do in the image that it is made to, so whoever asks for steps
// until one changes nothing has done all of it, whatever came in between: a crash,
// commits, or the opposite flip, after which the steps change nothing.

// The bounds of one step. The log in ZooKeeper writes a record twice, in CBOR and in
// JSON, which is twice as long: a step makes less than half of what one request may
// hold (768 KiB), and of what the writer puts into one batch (512 KiB).
const (
	stepItems = 200
	stepBytes = 128 << 10
	keyBytes  = 64 // of a removal, about
)

// step is a step in the making.
type step struct {
	Change
	items, bytes int
}

// add puts what is done about one item into the step, unless there is no room for it.
// What is larger than a step gets one to itself.
func (st *step) add(c Change) (added bool, err error) {
	n := keyBytes * len(c.Removals)
	for _, r := range c.Upserts {
		data, err := EncodeRecord(r)
		if err != nil {
			return false, err
		}
		n += len(data)
	}
	if st.items > 0 && (st.items == stepItems || st.bytes+n > stepBytes) {
		return false, nil
	}
	st.items++
	st.bytes += n
	st.Upserts = append(st.Upserts, c.Upserts...)
	st.Removals = append(st.Removals, c.Removals...)
	return true, nil
}

// result is what a step's function returns.
func (st *step) result(err error) (Change, error) {
	if err != nil {
		return refuse(CodeRecordTooLarge, "%v", err)
	}
	return st.Change, nil
}
