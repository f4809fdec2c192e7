package shufflerclient

import (
	"errors"
	"net/http"
)

// defaultHTTP has no client: an edge worker has its own, and [http.Client] would add a third to its
// size.
func defaultHTTP() HTTP { return none{} }

type none struct{}

func (none) Do(*http.Request) (*http.Response, error) {
	return nil, errors.New("couldn't send: no HTTP in shufflerclient.Options")
}
