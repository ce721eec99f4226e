package zkmeta

import (
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"
	"github.com/rs/zerolog"
)

// libraryLog takes what the library logs. It never logs a credential; what it
// says of one is how many there are.
type libraryLog struct {
	log        zerolog.Logger
	authFailed func()
	fault      func(error)
}

// Printf also listens: the errors of a handshake, and of credentials that are
// sent again after a reconnect, come by no other way.
func (l libraryLog) Printf(format string, args ...any) {
	for _, arg := range args {
		err, ok := arg.(error)
		if !ok {
			continue
		}
		if strings.HasPrefix(format, "authentication failed") {
			l.fault(err)
		}
		// It is in there as text only.
		if strings.Contains(err.Error(), zk.ErrAuthFailed.Error()) {
			l.authFailed()
		}
	}
	l.log.Debug().Msg(strings.TrimSpace(fmt.Sprintf(format, args...)))
}
