package outbound

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// WebhookKey decodes a secret of Standard Webhooks. The error says nothing about the secret.
func WebhookKey(secret string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return nil, fmt.Errorf("the secret is not base64 behind whsec_: %w", err)
	}
	return key, nil
}

// SignWebhook returns the header Webhook-Signature of a request, as the specification of Standard Webhooks says. It has a
// signature by each secret.
func SignWebhook(secrets []string, id string, at time.Time, body string) (string, error) {
	var all []string
	for _, secret := range secrets {
		key, err := WebhookKey(secret)
		if err != nil {
			return "", err
		}
		mac := hmac.New(sha256.New, key)
		_, _ = io.WriteString(mac, id+"."+strconv.FormatInt(at.Unix(), 10)+"."+body) // a hash takes everything
		all = append(all, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(all, " "), nil
}
