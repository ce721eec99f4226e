package controller

import (
	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/validation"
)

// What the machine's validation (validation.go) and its look through the deep
// stores (audits.go) do and hear.

// Survey has a look at the whole of an image, beside the machine. Surveyed follows.
type Survey struct {
	ID      uint64
	Image   *meta.Image
	Request validation.Request
}

// Surveyed is the result of the Survey of that ID.
type Surveyed struct {
	ID       uint64
	Findings *validation.Findings
}

// AskUpload asks a node to upload its copy of a segment, or with Poll only how far
// it is. UploadAnswered follows.
type AskUpload struct {
	ID      uint64
	Node    string // its id
	URL     string // of the node
	Table   string // name
	Segment string // name
	Poll    bool
}

// UploadAnswered is the result of the AskUpload of that ID.
type UploadAnswered struct {
	ID     uint64
	Answer validation.Answer
	Err    error
}

// ListDeepStore compares a part of a table's deep store with what the image says is
// there, from after the key After on (ListObjects). ObjectsListed follows.
type ListDeepStore struct {
	ID    uint64
	Image *meta.Image
	Table uuid.UUID
	Name  string // of the table
	Store string // URI of the table's deep store
	After string // key, "" for the first
	Pages int    // of PageKeys keys, at most
}

// ObjectsListed is the result of the ListDeepStore of that ID.
type ObjectsListed struct {
	ID uint64
	// Missing are copies that the image says are verified and the listing does not
	// show, or shows with another size, in the part that was listed, also of one that
	// ended with Err. It is no reason to withdraw them: a listing may be late.
	Missing []MissingCopy
	Pages   int    // that were listed
	After   string // where the next part begins
	Done    bool   // nothing is after that
	Err     error
}

// MissingCopy is a copy that a listing does not show.
type MissingCopy struct {
	Segment meta.SegmentKey
	URI     string
}

// LookAtValidation asks what validation has found. One ValidationSeen follows.
type LookAtValidation struct {
	Ticket Ticket
	Limit  int // of each list
}

// RunValidation has everything looked at now; with DryRun nobody is asked to do
// anything. One ValidationSeen follows.
type RunValidation struct {
	Ticket Ticket
	DryRun bool
	Limit  int
}

// ValidationSeen answers LookAtValidation and RunValidation.
type ValidationSeen struct {
	Ticket Ticket
	View   api.ValidationView
	Refuse Refusal
}

// RefuseBusy refuses a run beside too many others.
const RefuseBusy Refusal = "BUSY"

func (Surveyed) event()         {}
func (UploadAnswered) event()   {}
func (ObjectsListed) event()    {}
func (LookAtValidation) event() {}
func (RunValidation) event()    {}

func (Survey) action()         {}
func (AskUpload) action()      {}
func (ListDeepStore) action()  {}
func (ValidationSeen) action() {}
