package controller

import (
	"net/http"
	"strconv"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/httpx"
)

// validationLimit is how long the lists of an answer may be: ?limit=.
func validationLimit(r *http.Request) (int, error) {
	s := r.URL.Query().Get("limit")
	if s == "" {
		return httpx.DefaultLimit, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > httpx.MaxLimit {
		return 0, httpx.Errorf(http.StatusBadRequest, api.CodeInvalidRequest, "limit=%s is not a number from 1 to %d", httpx.OneLine(s), httpx.MaxLimit)
	}
	return n, nil
}

func (c *Controller) getValidation(w http.ResponseWriter, r *http.Request) error {
	limit, err := validationLimit(r)
	if err != nil {
		return err
	}
	return c.answerValidation(w, r, func(t Ticket) Event { return LookAtValidation{Ticket: t, Limit: limit} })
}

func (c *Controller) runValidation(w http.ResponseWriter, r *http.Request) error {
	limit, err := validationLimit(r)
	if err != nil {
		return err
	}
	dryRun, err := httpx.BoolParam(r, "dryRun")
	if err != nil {
		return err
	}
	return c.answerValidation(w, r, func(t Ticket) Event { return RunValidation{Ticket: t, DryRun: dryRun, Limit: limit} })
}

func (c *Controller) answerValidation(w http.ResponseWriter, r *http.Request, ev func(Ticket) Event) error {
	seen, err := c.shell.validation(r.Context(), ev)
	switch {
	case err != nil:
		return err
	case seen.Refuse == RefuseBusy:
		return httpx.Errorf(http.StatusServiceUnavailable, string(RefuseBusy), "%d looks at everything are under way already: ask again in a moment", surveysMax).
			WithHeader("Retry-After", "5")
	case seen.Refuse != "":
		return ErrNotLeading
	}
	return httpx.WriteJSON(w, http.StatusOK, seen.View)
}
