package httpx

import (
	"net/http"
	"strconv"
)

// BoolParam reads a parameter of the query that is true or false; false without it.
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
