package meta

// What the tests compare the decoder with that is used for nearly all segments.
var (
	DecodeSegmentFast = decodeSegment
	DecodeRecordSlow  = decodeRecord
)
