import { useState } from 'preact/hooks';
import { callJson, CallError, session } from './api.ts';
import { html, type View } from './html.ts';
import { TextField, useWork } from './parts.ts';

const TOKEN = /^#token=([\w-]+)$/;

/**
 * Exchanges the one-time token of the printed address for a key, and removes it from the address at once. Undefined if
 * there was no token; else why it failed, or nothing.
 */
export async function signInByToken(): Promise<{ readonly message: string | undefined } | undefined> {
  const token = TOKEN.exec(location.hash)?.[1];
  if (token === undefined) return undefined;
  history.replaceState(null, '', location.pathname);
  try {
    const { result } = await callJson<{ result: { key: string } }>('/console/sign-in', {
      method: 'POST',
      body: { token },
    });
    session.signIn(result.key);
    return { message: undefined };
  } catch (error) {
    return { message: error instanceof CallError ? error.message : 'The sign-in failed.' };
  }
}

/** Asks for a key and tries it before it keeps it. */
export function SignIn({
  message,
  onSignedIn,
}: {
  readonly message: string | undefined;
  readonly onSignedIn: () => void;
}): View {
  const [key, setKey] = useState('');
  const { isBusy, error, run } = useWork();
  const onSubmit = (event: Event): void => {
    event.preventDefault();
    void run(async (signal) => {
      await callJson('/api/status', { key: key.trim(), signal });
      session.signIn(key.trim());
      onSignedIn();
    });
  };
  const shown = isBusy ? undefined : error === undefined ? message : wordsOf(error);
  return html`<main class="sign-in">
    <form onSubmit=${onSubmit}>
      <h1>sluice</h1>
      <p>Sign in with an API key. It is kept in this tab until you close it, and nowhere else.</p>
      ${shown !== undefined && html`<p class="note bad" role="alert">${shown}</p>`}
      <${TextField} id="key" label="API key" type="password" required autocomplete="off" spellcheck=${false} value=${key} onText=${setKey} />
      <button type="submit" class="primary" disabled=${isBusy}>${isBusy ? 'Signing in…' : 'Sign in'}</button>
      <p class="quiet">
        The first admin key is API_KEY, or stands in <code>data/api-key</code> of the service.
        <code>npm run keys -- create</code> makes others.
      </p>
    </form>
  </main>`;
}

function wordsOf(error: unknown): string {
  if (!(error instanceof CallError)) return 'The key holds characters that no key has.';
  return error.status === 401 ? 'This key is not valid.' : error.message;
}
