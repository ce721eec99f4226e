package httpx

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// PageParams are the parameters of a list that Page cuts.
var PageParams = []string{"limit", "after"}

// CheckParams refuses a query that cannot be read, that has a parameter other than the
// known ones, or one twice. What is left out otherwise may be what the caller relies on:
// ?dryrun=true must not do what ?dryRun=true would only have shown.
func CheckParams(r *http.Request, known ...string) error {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return Errorf(http.StatusBadRequest, CodeInvalidRequest, "the query cannot be read: %s", OneLine(err.Error()))
	}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		switch {
		case len(known) == 0:
			return Errorf(http.StatusBadRequest, CodeInvalidRequest, "there is no parameter %q here, nor any other", OneLine(name))
		case !slices.Contains(known, name):
			return Errorf(http.StatusBadRequest, CodeInvalidRequest, "there is no parameter %q here, only %s", OneLine(name), strings.Join(known, ", "))
		case len(q[name]) > 1:
			return Errorf(http.StatusBadRequest, CodeInvalidRequest, "%s is given %d times", name, len(q[name]))
		}
	}
	return nil
}

// OnlyParams is h behind CheckParams.
func OnlyParams(h HandlerFunc, known ...string) HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := CheckParams(r, known...); err != nil {
			return err
		}
		return h(w, r)
	}
}

// BoolParam reads a parameter of a query that CheckParams has let pass, which is true or
// false; false without it.
func BoolParam(r *http.Request, name string) (bool, error) {
	q := r.URL.Query()
	if !q.Has(name) {
		return false, nil
	}
	v, err := strconv.ParseBool(q.Get(name))
	if err != nil {
		return false, Errorf(http.StatusBadRequest, CodeInvalidRequest, "%s is %q, not true or false", name, OneLine(q.Get(name)))
	}
	return v, nil
}
