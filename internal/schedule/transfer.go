package schedule

import "time"

// ForBytes is how long n bytes may take to or from a deep store, on top of what there
// is without any: a second for each quarter of a MiB, up to a day. It is one number for
// the requests, for the uploads made of them, and for whoever waits for those: in less
// than its requests have, a thin line that others share would get no large segment
// through, and begin it anew for ever.
func ForBytes(n int64) time.Duration {
	const perSecond, most = 256 << 10, 24 * time.Hour
	return min(time.Duration(n/perSecond), most/time.Second) * time.Second
}
