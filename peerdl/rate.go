package peerdl

import (
	"context"

	"golang.org/x/time/rate"
)

// Rate is a budget of bytes a second that all who have the same Rate share, in
// the order in which they come. Nil is no limit.
type Rate struct {
	limiter *rate.Limiter
	most    int // bytes at once
}

// NewRate returns a budget, nil for none: bytesPerSecond is 0.
func NewRate(bytesPerSecond int64) *Rate {
	if bytesPerSecond <= 0 {
		return nil
	}
	// An eighth of a second at once: then many who share a small budget still get
	// something each within the time that is taken for silence.
	most := int(min(max(bytesPerSecond/8, 1<<10), readSize))
	return &Rate{limiter: rate.NewLimiter(rate.Limit(bytesPerSecond), most), most: most}
}

// step is how many bytes may be waited for at once.
func (r *Rate) step() int {
	if r == nil {
		return int(^uint(0) >> 1)
	}
	return r.most
}

// wait waits until n bytes, a step at most, are within the budget.
func (r *Rate) wait(ctx context.Context, n int) error {
	if r == nil {
		return nil
	}
	if err := r.limiter.WaitN(ctx, n); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	return nil
}
