package node

import (
	"testing"

	"github.com/shoalstore/shoal/segment"
)

// A download that was begun stays as long as somebody may want it.
func TestDownloadsThatNobodyWantsAreGivenUp(t *testing.T) {
	b := newRig(t)
	wanted, held, claimed := b.commit(0), b.commit(1), b.commit(0)
	consuming := b.log.Image.InProgress(wanted.SegmentKey().PartitionKey()).SegmentKey()
	gone := b.key(0, 70)
	b.show()
	b.step(Claimed{claimed.SegmentKey()})
	b.step(holds(held.SegmentKey(), good(held)))
	other := segment.Digest{0xab, 0xcd}
	found := DownloadsFound{[]segment.Download{
		begunDownload(wanted.SegmentKey(), wanted.Digest),
		begunDownload(wanted.SegmentKey(), other),
		begunDownload(held.SegmentKey(), held.Digest),
		begunDownload(claimed.SegmentKey(), claimed.Digest),
		begunDownload(consuming, other),
		begunDownload(gone, other),
	}}
	b.want("", found) // who knows what the image lacks?
	b.step(b.register())
	surplus := "drop download " + short(held.SegmentKey()) + " " + held.Digest.Short()[:4] + "; drop download " + short(gone) + " abcd"
	b.want(surplus, found) // the wanted one is being fetched, whatever file it is
	b.step(FetchDone{Segment: wanted.SegmentKey(), Err: errTest})
	b.want("drop download "+short(wanted.SegmentKey())+" abcd; "+surplus, found)
}
