package shufflerclient

import (
	"errors"
	"net/http"
)

// defaultHTTP returns no usable client: an edge worker has its own, and [http.Client] would add a third to the
// worker's size.
func defaultHTTP() HTTP { return none{} }

type none struct{}

func (none) Do(*http.Request) (*http.Response, error) {
	return nil, errors.New("couldn't send: no HTTP in shufflerclient.Options")
}
