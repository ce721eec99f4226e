package httpx

import (
	"iter"
	"net/http"
	"strconv"
)

// The number of items on a page: without ?limit=, and at most.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
)

// List is one page of a list as it is answered.
type List[T any] struct {
	Items []T `json:"items"`
	// Next is the ?after= of the next page, empty on the last one.
	Next string `json:"next,omitempty"`
}

// Page cuts the page out of items that the request asks for by ?limit= and
// ?after=, the key of the last item seen. items come in ascending order of
// their keys, compared as strings: numbers in keys are padded. Items that come
// or go between two requests make no other item appear twice or never.
func Page[T any](r *http.Request, items iter.Seq[T], key func(T) string) (List[T], error) {
	page := List[T]{Items: []T{}}
	query := r.URL.Query()
	limit := DefaultLimit
	if s := query.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > MaxLimit {
			return page, Errorf(http.StatusBadRequest, CodeInvalidRequest, "limit=%s is not a number from 1 to %d", OneLine(s), MaxLimit)
		}
		limit = n
	}
	after, resumed := query.Get("after"), query.Has("after")
	for item := range items {
		if resumed && key(item) <= after {
			continue
		}
		if len(page.Items) == limit {
			page.Next = key(page.Items[limit-1])
			break
		}
		page.Items = append(page.Items, item)
	}
	return page, nil
}
