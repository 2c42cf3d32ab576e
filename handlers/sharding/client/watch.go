package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"procaas/engine/clock"
)

const (
	// acceptNews asks for a stream of events. A server without streams answers in JSON after some
	// seconds, and is asked again.
	acceptNews = "text/event-stream, application/json;q=0.5"

	// watchSilence is how long a stream may be silent before it counts as dead: three times the
	// interval of a server's keep-alive.
	watchSilence = 45 * time.Second

	// watchAgain is the pause after a stream that ended normally, for example because its node
	// stopped. watchPause is the pause after an error.
	watchAgain = 50 * time.Millisecond
	watchPause = time.Second
)

// Watch drops the answers about changed placements, until ctx ends. Without it, an answer stays for
// its TTL.
func (c *Client) Watch(ctx context.Context) {
	for after := ""; ctx.Err() == nil; {
		err := c.follow(ctx, &after)
		switch {
		case err == nil:
		case errors.Is(err, errEnded):
			clock.Pause(ctx, watchAgain)
		case ctx.Err() == nil:
			// No changes are reported now, so any answer may be outdated.
			c.forget(true)
			clock.Pause(ctx, watchPause)
		}
	}
}

// errEnded reports that the server has ended a stream. The client continues at the same position.
var errEnded = errors.New("the stream has ended")

// changes are reported changes of a map.
type changes struct {
	Next  string `json:"next"`  // position after these changes
	Reset bool   `json:"reset"` // anything may have changed
	Items []struct {
		Placement string `json:"placement"`
	} `json:"items"`
}

// follow applies the changes after a position and advances the position. It returns at the end of a
// stream, or after one reply if the server has no streams.
func (c *Client) follow(ctx context.Context, after *string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	alive := time.AfterFunc(watchSilence, cancel)
	defer alive.Stop()
	endless := *c.HTTP
	endless.Timeout = 0
	reply, err := c.send(ctx, &endless, "/watch?"+url.Values{"after": {*after}}.Encode(), acceptNews)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if !strings.HasPrefix(reply.Header.Get("Content-Type"), "text/event-stream") {
		var news changes
		if err := decode(reply, &news); err != nil {
			return err
		}
		c.learn(news, after)
		return nil
	}
	return events(reply.Body, func() { alive.Reset(watchSilence) }, func(data []byte) error {
		var news changes
		if err := json.Unmarshal(data, &news); err != nil {
			return fmt.Errorf("watch the shard map: %w", err)
		}
		c.learn(news, after)
		return nil
	})
}

// learn drops the answers that changes have made outdated.
func (c *Client) learn(news changes, after *string) {
	placements := make([]string, len(news.Items))
	for i, item := range news.Items {
		placements[i] = item.Placement
	}
	if news.Reset || len(placements) > 0 {
		c.forget(news.Reset, placements...)
	}
	*after = news.Next
}

// events reads a stream to its end. It calls line for each line, and take with the data of each
// event.
func events(stream io.Reader, line func(), take func(data []byte) error) error {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, maxAnswer)
	var data []byte
	for lines.Scan() {
		line()
		text := lines.Bytes()
		if more, ok := bytes.CutPrefix(text, []byte("data:")); ok {
			if data != nil {
				data = append(data, '\n')
			}
			data = append(data, bytes.TrimPrefix(more, []byte(" "))...)
			continue
		}
		if len(text) > 0 || data == nil {
			continue // comments, names and ids: the data includes the position
		}
		if err := take(data); err != nil {
			return err
		}
		data = nil
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("watch the shard map: %w", err)
	}
	return errEnded
}
