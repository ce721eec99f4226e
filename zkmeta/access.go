package zkmeta

import (
	"crypto/tls"
	"time"

	"github.com/rs/zerolog"
)

// Access is how an ensemble is reached, beside its address.
type Access struct {
	// SessionTimeout is how long ZooKeeper keeps the session of a process that it
	// does not hear of; 0 means 10 s. The servers bound it to 2 to 20 of their ticks.
	// A leader that hears nothing stops leading after two thirds of it.
	SessionTimeout time.Duration
	// User and Password are for digest authentication; both or none.
	User, Password string
	// TLS, if set, is used for every connection.
	TLS *tls.Config
}

// Conn is the configuration of a connection to an address by that access.
func (a Access) Conn(address Address, log zerolog.Logger, metrics *Metrics) ConnConfig {
	return ConnConfig{
		Address: address, SessionTimeout: a.SessionTimeout, User: a.User, Password: a.Password, TLS: a.TLS,
		Logger: log, Metrics: metrics,
	}
}
