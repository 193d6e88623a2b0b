import { writeSync } from 'node:fs';
import { EXIT_USAGE, StartError } from '../errors.ts';
import { readSettings, settingsTable, type Setting, type SettingName, type Settings } from './settings.ts';

const CHECK = '--check-config';

/** Whether the process was called only to print its settings. */
export function isConfigCheck(): boolean {
  return process.argv.includes(CHECK, 2);
}

function helpOf(script: string): string {
  return `${called(script)}: runs until SIGTERM or ctrl-C; logs on stderr

  ${CHECK}   how every setting is understood, secrets redacted; exit code 78 where one is wrong
  --help           this text

Settings are environment variables: docs/settings.md lists them.
`;
}

function called(script: string): string {
  return script === 'start' ? 'npm start' : `npm run ${script}`;
}

/**
 * Returns the settings of a service; it cannot run without those in `needs`. With --check-config it prints them,
 * secrets redacted, and ends the process with 0 before anything starts. With --help it also prints the usage. Throws
 * StartError (exit code 78) that names every mistake, also in a check, or with exit code 64 for wrong arguments.
 */
export function readServiceSettings<Needed extends SettingName = never>(
  script: string,
  needs: readonly Needed[] = [],
): Settings & { readonly [K in Needed]: NonNullable<Settings[K]> } {
  const args = process.argv.slice(2);
  if (args.includes('--help') || args.includes('-h')) {
    writeSync(1, helpOf(script));
    process.exit(0);
  }
  const unknown = args.filter((arg) => arg !== CHECK);
  if (unknown.length > 0)
    throw new StartError(
      `${called(script)} takes ${CHECK} and --help, not ${unknown.join(' ')}; settings are environment variables`,
      { exitCode: EXIT_USAGE },
    );
  const settings = readSettings(process.env, { script, needs });
  if (isConfigCheck()) {
    writeSync(1, describeSettings(settings));
    process.exit(0);
  }
  return settings as Settings & { readonly [K in Needed]: NonNullable<Settings[K]> };
}

/**
 * Returns every setting as it was understood, for people. Secrets and credentials in addresses become `***`. Defaults
 * are marked.
 */
export function describeSettings(settings: Settings): string {
  const rows = (Object.entries(settingsTable) as [SettingName, Setting<unknown>][]).map(([name, s]) => {
    const value = settings[name];
    const isDefault = value === s.default;
    const unit = s.unit === undefined ? '' : ` ${s.unit}`;
    return `${name} = ${shownValue(value, isDefault, s)}${unit}${isDefault ? ' (default)' : ''}`;
  });
  return `${rows.join('\n')}\n`;
}

function shownValue(value: unknown, isDefault: boolean, { shown = 'none', secret }: Setting<unknown>): string {
  if (isDefault && (value === undefined || typeof value === 'object')) return shown;
  if (secret === undefined) return textOf(value);
  return secret === 'address' ? redacted(textOf(value)) : '***';
}

function textOf(value: unknown): string {
  if (Array.isArray(value)) return value.join(',');
  return typeof value === 'object' && value !== null
    ? Object.entries(value)
        .map(([name, of]) => `${name}=${String(of)}`)
        .join(',')
    : String(value);
}

/** Returns an address, or several separated by commas, without their secrets. */
function redacted(value: string): string {
  const [one = '', ...more] = value.split(/,(?=https?:)/i);
  if (more.length > 0) return [one, ...more].map(redacted).join(',');
  if (!URL.canParse(value)) return '***';
  const { protocol, username, password, host, pathname } = new URL(value);
  return `${protocol}//${username === '' && password === '' ? '' : '***@'}${host}${pathname === '/' ? '' : pathname}`;
}
