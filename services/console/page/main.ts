// oxlint-disable-next-line import/no-unassigned-import -- it must run before the others load
import './locale.ts';
import { render, type ComponentChild } from 'preact';
import { useCallback, useEffect, useState } from 'preact/hooks';
import type { Status } from '../wire.ts';
import { hasStorage, session } from './api.ts';
import { Explore } from './explore/explore.ts';
import { clock, sentence, type Zone } from './format.ts';
import { html, type View } from './html.ts';
import { useLive, type Connection } from './live.ts';
import { DeadLetters } from './operate/dead-letters.ts';
import { Keys } from './operate/keys.ts';
import { Overview } from './overview/overview.ts';
import { addressOf, usePlace, type Place } from './route.ts';
import { SignIn, signInByToken } from './sign-in.ts';

const PAGES = [
  ['overview', 'Overview'],
  ['explore', 'Explore'],
  ['dead-letters', 'Dead letters'],
  ['keys', 'Keys'],
] as const;
const nameOf = ({ page }: Place): string | undefined => PAGES.find(([of]) => of === page)?.[1];
const ZONE = 'sluice.zone';

function App({ message: first }: { readonly message: string | undefined }): View {
  const [isSignedIn, setIsSignedIn] = useState(session.key() !== undefined);
  const [message, setMessage] = useState(first);
  const [zone, setZone] = useState<Zone>(localStorage.getItem(ZONE) === 'utc' ? 'utc' : 'local');
  const onRefused = useCallback((why: string) => {
    session.signOut();
    setMessage(`You were signed out: ${why}`);
    setIsSignedIn(false);
  }, []);
  const { status, connection, dismiss } = useLive(isSignedIn, onRefused);
  const place = usePlace();
  const name = isSignedIn ? nameOf(place) : undefined;
  useEffect(() => {
    document.title = name === undefined ? 'sluice' : `${name} – sluice`;
  }, [name]);
  if (!isSignedIn)
    return html`<${SignIn}
      message=${message}
      onSignedIn=${() => {
        setMessage(undefined);
        setIsSignedIn(true);
      }}
    />`;

  const chooseZone = (chosen: Zone): void => {
    localStorage.setItem(ZONE, chosen);
    setZone(chosen);
  };
  const signOut = (): void => {
    session.signOut();
    setMessage(undefined);
    setIsSignedIn(false);
  };
  return html`<a
      class="skip"
      href="#content"
      onClick=${(e: Event) => {
        e.preventDefault();
        document.getElementById('content')?.focus();
      }}
      >Skip to the content</a
    >
    <header class="top">
      <b class="brand">sluice</b>
      <nav aria-label="Pages">
        ${PAGES.map(([page, name]) => html`<a key=${page} href=${addressOf(page)} aria-current=${place.page === page ? 'page' : undefined}>${name}</a>`)}
      </nav>
      <div class="tools">
        <span class="group" role="group" aria-label="Time zone"
          >${(['local', 'utc'] as const).map((z) => html`<button type="button" class="small" aria-pressed=${zone === z} onClick=${() => chooseZone(z)}>${z === 'utc' ? 'UTC' : 'Local'}</button>`)}</span
        >
        ${status !== undefined && html`<span class="quiet who" title=${`Scopes: ${status.key.scopes.join(', ')}${status.key.projects.length > 0 ? `; projects: ${status.key.projects.join(', ')}` : ''}`}>${status.key.name}</span>`}
        <button type="button" class="small" onClick=${signOut}>Sign out</button>
      </div>
    </header>
    <${Notices} connection=${connection} zone=${zone} onDismiss=${dismiss} />
    <main id="content" tabindex="-1">
      ${status === undefined ? html`<p class="quiet loading">Loading…</p>` : html`<${Page} status=${status} place=${place} zone=${zone} />`}
    </main>`;
}

interface PageProps {
  readonly status: Status;
  readonly place: Place;
  readonly zone: Zone;
}

function Page({ status, place, zone }: PageProps): View {
  const { key, system } = status;
  const name = nameOf(place);
  if (name === undefined)
    return html`<h1>There is no such page.</h1>
      <p><a href=${addressOf('overview')}>Overview</a></p>`;
  if (place.page === 'overview') return html`<${Overview} status=${status} zone=${zone} />`;
  if (place.page === 'explore') return html`<${Explore} place=${place} zone=${zone} scopes=${key.scopes} />`;
  if (system === null)
    return html`<h1>${name}</h1>
      <p class="note">
        This page needs a key with the scope <code>admin</code>. Your key
        ${` ${key.name} has ${key.scopes.join(', ')}.`}
      </p>`;
  return place.page === 'keys'
    ? html`<${Keys} zone=${zone} />`
    : html`<${DeadLetters} place=${place} zone=${zone} totals=${system.dead_letter_totals} />`;
}

/** Every change of its text is read aloud, so the text does not count the time. */
function Notices({
  connection: { trouble, notice },
  zone,
  onDismiss,
}: {
  readonly connection: Connection;
  readonly zone: Zone;
  readonly onDismiss: () => void;
}): View {
  return html`<div class="notices" aria-live="polite">
    ${
      trouble !== undefined &&
      html`<p class="note bad">
        <b>${sentence(trouble.refusal ?? 'The service does not answer')}</b>
        ${` What you see is as of ${clock(trouble.since, zone)}. Trying again.`}
        ${trouble.refusal === undefined && " The runbook's section is SluiceDown."}
      </p>`
    }
    ${trouble === undefined && notice !== undefined && html`<p class="note good" id="notice">${notice} <button type="button" class="small" onClick=${onDismiss}>Dismiss</button></p>`}
  </div>`;
}

const root = document.getElementById('app');
if (root === null) throw new Error('unreachable: index.html has it');
let shown = 0;
const show = async (): Promise<void> => {
  const signedIn = await signInByToken();
  // what another key has shown is forgotten
  if (shown === 0 || signedIn !== undefined)
    render(html`<${App} key=${shown++} message=${signedIn?.message} />` as ComponentChild, root);
};
if (hasStorage()) {
  // a link that is pasted into an open tab changes only the hash
  addEventListener('hashchange', () => void show());
  await show();
} else
  root.textContent = 'Allow this site to store data in the browser: the key is kept there until the tab is closed.';
