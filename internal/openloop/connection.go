package openloop

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/doona-dp/doona/wire/problem"
)

// connection is a persistent connection to the relay. It is opened again after it closes.
type connection struct {
	net.Conn
	url  *url.URL
	tls  *tls.Config
	in   *bufio.Reader
	head []byte // the lines that begin every request, up to the content length
	name string // name of the header that carries a client's address
	out  []byte // buffer of a request, used again for the next request
}

func newConnection(o *Options) *connection {
	return &connection{url: o.URL, tls: o.TLS, in: bufio.NewReaderSize(nil, 1024), name: o.Header,
		head: fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/msgpack\r\nContent-Length: ",
			o.URL.RequestURI(), o.URL.Host)}
}

// timeout limits a dial, and the wait for an answer.
const timeout = 30 * time.Second

// errNoAnswer means that the connection broke before an answer. The relay may have accepted the report.
var errNoAnswer = errors.New("the connection broke before an answer")

// offer sends a report. It returns nil if the relay accepts it, the relay's problem if not, or an error of the
// connection.
func (c *connection) offer(report *LoadReport) error {
	if err := c.open(); err != nil {
		return err
	}
	if c.send(report) == nil {
		if refusal, err := c.answer(); err == nil {
			return refusal
		}
	}
	c.close()
	return errNoAnswer
}

func (c *connection) open() error {
	if c.Conn == nil {
		var err error
		d := &net.Dialer{Timeout: timeout}
		if c.url.Scheme == "https" {
			c.Conn, err = tls.DialWithDialer(d, "tcp", hostPort(c.url, "443"), c.tls)
		} else {
			c.Conn, err = d.Dial("tcp", hostPort(c.url, "80"))
		}
		if err != nil {
			c.Conn = nil
			return err
		}
		c.in.Reset(c.Conn)
	}
	return c.SetDeadline(time.Now().Add(timeout))
}

func hostPort(u *url.URL, port string) string {
	if u.Port() != "" {
		port = u.Port()
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// send writes a request with a single write call.
func (c *connection) send(report *LoadReport) error {
	c.out = strconv.AppendInt(append(c.out[:0], c.head...), int64(len(report.Body)), 10)
	if report.Client != "" {
		c.out = append(append(append(append(c.out, "\r\n"...), c.name...), ": "...), report.Client...)
	}
	if report.Authorization != "" {
		c.out = append(append(c.out, "\r\nAuthorization: "...), report.Authorization...)
	}
	c.out = append(append(c.out, "\r\n\r\n"...), report.Body...)
	_, err := c.Write(c.out)
	return err
}

// answer reads an answer. refusal is the relay's problem, or nil if it accepted the report.
func (c *connection) answer() (refusal, err error) {
	if c.acknowledged() {
		return nil, nil
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusCreated {
		refusal = problem.Read(resp)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.Close {
		c.close()
	}
	return refusal, nil
}

// Parts of the relay's usual acknowledgement, which has no body.
var (
	created = []byte("HTTP/1.1 201 ")
	empty   = []byte("\r\nContent-Length: 0\r\n")
	closing = []byte("\r\nConnection: close\r\n")
	ends    = []byte("\r\n\r\n")
)

// acknowledged consumes an answer without parsing it, if it is the usual acknowledgement and fully buffered. Parsing it
// with net/http would take a quarter of the time that the relay needs for a report.
func (c *connection) acknowledged() bool {
	if _, err := c.in.Peek(1); err != nil { // waits for the answer
		return false
	}
	buffered, _ := c.in.Peek(c.in.Buffered())
	head := bytes.Index(buffered, ends)
	if head < 0 || !bytes.HasPrefix(buffered, created) {
		return false
	}
	fields := buffered[:head+len("\r\n")]
	if !bytes.Contains(fields, empty) || bytes.Contains(fields, closing) {
		return false
	}
	c.in.Discard(head + len(ends))
	return true
}

func (c *connection) close() {
	if c.Conn != nil {
		c.Conn.Close()
		c.Conn = nil
	}
}
