import type { Population, Project } from './population.ts';
import { weighted, type Random } from './random.ts';

/** Where a request went. `path` and `search` stand in the URL as they are here. */
export interface Address {
  readonly host: string;
  readonly path: string;
  /** with its question mark, or empty */
  readonly search: string;
}

/**
 * Forms of URL. `platform` is what nearly all requests have: the reference in the host name, a path of one of the API
 * families.
 * The others are legal and rare, and each is a way to get the counting of requests by reference wrong.
 */
export const urlShapes = [
  'platform',
  /** no reference anywhere */
  'custom_domain',
  /** another project's reference in an object name */
  'foreign_reference',
  /** another project's reference inside a longer run of lower-case letters */
  'long_letters',
  /** characters percent-encoded, the first letter of another project's reference among them */
  'percent_encoded',
  /** another project's reference in upper case, and a host in upper case */
  'upper_case',
  /** the project's own reference a second time */
  'same_reference_twice',
  /** one path that belongs to several API families */
  'several_families',
  /** between 62 and 66 distinct windows of 20 lower-case letters */
  'window_limit',
  /** 200 to 5,000 of them */
  'many_windows',
] as const;
export type UrlShape = (typeof urlShapes)[number];

const families = weighted({ rest: 56, auth: 15, storage: 14, realtime: 9, functions: 6 });
const tables = [
  'orders',
  'customers',
  'products',
  'profiles',
  'messages',
  'rooms',
  'memberships',
  'invoices',
  'events',
  'tasks',
  'comments',
  'likes',
  'sessions_v2',
  'inventory',
  'line_items',
  'settings',
];
const columns = [
  '*',
  'id',
  'id,name',
  'id,total,status',
  '*,customer:customers(name)',
  'count',
  'id,created_at,updated_at',
];
const procedures = ['search_products', 'get_feed', 'match_documents', 'is_member', 'monthly_totals', 'nearby'];
const authPaths: readonly (readonly [path: string, search: string])[] = [
  ['/auth/v1/token', '?grant_type=refresh_token'],
  ['/auth/v1/token', '?grant_type=password'],
  ['/auth/v1/user', ''],
  ['/auth/v1/signup', ''],
  ['/auth/v1/verify', '?type=magiclink'],
  ['/auth/v1/settings', ''],
];
const buckets = ['avatars', 'products', 'attachments', 'exports', 'covers'];
const customDomains = ['api.shop.example', 'data.learn.example', 'backend.chat.example', 'db.fleet.example'];
const pageSizes = [10, 20, 25, 50, 100, 1000];
const imageWidths = [320, 640, 1080, 1920];
/** distinct windows of a `window_limit` URL */
const windowCounts = [62, 63, 64, 65, 66];

/** The address of one request to a project. */
export function drawAddress(shape: UrlShape, project: Project, population: Population, random: Random): Address {
  const host = `${project.ref}.supabase.co`;
  const other = (): string => population.project(random.below(population.projectCount)).ref;
  switch (shape) {
    case 'platform':
      return platformAddress(host, project, random);
    case 'custom_domain':
      return { ...platformAddress(host, project, random), host: random.pick(customDomains) };
    case 'foreign_reference':
      return { host, path: `/storage/v1/object/public/exports/${other()}/${random.hex(8)}.csv`, search: '' };
    case 'long_letters':
      return {
        host,
        path: `/rest/v1/rpc/${random.letters(random.below(12))}${other()}${random.letters(1 + random.below(12))}`,
        search: '',
      };
    case 'percent_encoded': {
      const ref = other();
      return {
        host,
        path: `/storage/v1/object/public/${random.pick(buckets)}/Gr%C3%B6%C3%9Fe%20%22${random.hex(4)}%22/%${ref.charCodeAt(0).toString(16)}${ref.slice(1)}.png`,
        search: `?name=${ref}%2F..%5C`,
      };
    }
    case 'upper_case':
      return {
        host: random.chance(0.5) ? host.toUpperCase() : host,
        path: `/storage/v1/object/public/exports/${other().toUpperCase()}/Report.CSV`,
        search: '',
      };
    case 'same_reference_twice':
      return {
        host,
        path: `/storage/v1/object/public/${random.pick(buckets)}/${project.ref}/${random.hex(8)}.png`,
        search: `?owner=${project.ref}`,
      };
    case 'several_families':
      return {
        host,
        path: `/storage/v1/object/public/docs/rest/auth/${random.chance(0.5) ? 'realtime' : 'v1'}/${random.hex(8)}.html`,
        search: '?from=/realtime',
      };
    // the host gives one window, a run of n letters n - 19
    case 'window_limit':
      return { host, path: `/rest/v1/${random.letters(random.pick(windowCounts) - 1 + 19)}`, search: '' };
    case 'many_windows':
      return { host, path: `/rest/v1/rpc/${random.letters(19 + 200 + random.below(4801))}`, search: '' };
  }
}

function platformAddress(host: string, project: Project, random: Random): Address {
  switch (families(random)) {
    case 'rest':
      if (random.chance(0.2)) return { host, path: `/rest/v1/rpc/${random.pick(procedures)}`, search: '' };
      if (random.chance(0.4))
        return {
          host,
          path: `/rest/v1/${random.pick(tables)}`,
          search: `?select=${random.pick(columns)}&id=eq.${random.below(900_000)}`,
        };
      return {
        host,
        path: `/rest/v1/${random.pick(tables)}`,
        search: `?select=${random.pick(columns)}&order=created_at.desc&limit=${random.pick(pageSizes)}`,
      };
    case 'auth': {
      const [path, search] = random.pick(authPaths);
      return { host, path, search };
    }
    case 'storage':
      return {
        host,
        path: `/storage/v1/object/public/${random.pick(buckets)}/${random.hex(16)}.png`,
        search: random.chance(0.4) ? `?width=${random.pick(imageWidths)}` : '',
      };
    case 'realtime':
      return { host, path: '/realtime/v1/websocket', search: '?vsn=1.0.0&log_level=info' };
    case 'functions':
      return {
        host,
        path: `/functions/v1/${project.functions.length === 0 ? 'hello' : project.drawFunction(random).slug}`,
        search: '',
      };
  }
}
