package httpx

import (
	"net/http"
	"net/url"
	"strconv"
)

// BoolParam reads a parameter of the query that is true or false; false without it.
// A query that cannot be read, or that says it twice, is refused: what it leaves out
// may be what the caller relies on, as ?dryRun=.
func BoolParam(r *http.Request, name string) (bool, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	switch {
	case err != nil:
		return false, Errorf(http.StatusBadRequest, CodeInvalidRequest, "the query cannot be read: %s", OneLine(err.Error()))
	case !q.Has(name):
		return false, nil
	case len(q[name]) > 1:
		return false, Errorf(http.StatusBadRequest, CodeInvalidRequest, "%s is given %d times", name, len(q[name]))
	}
	v, err := strconv.ParseBool(q.Get(name))
	if err != nil {
		return false, Errorf(http.StatusBadRequest, CodeInvalidRequest, "%s is %q, not true or false", name, OneLine(q.Get(name)))
	}
	return v, nil
}
