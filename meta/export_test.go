package meta

// What the tests compare: encoder and decoder of segments, and those of any record.
var (
	AppendSegmentFast = appendSegment
	AppendRecordSlow  = appendGeneral
	DecodeSegmentFast = decodeSegment
	DecodeRecordSlow  = decodeRecord
)
