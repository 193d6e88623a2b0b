import { createRandom, weightedIndex, zipf, type Random } from './random.ts';

/**
 * Who takes part in the traffic: projects with their functions, and the clients that call them. All made up from the
 * seed:
 * references of 20 random letters, networks of RFC 5398, addresses of RFC 2544, names under .example.
 */
export interface Population {
  readonly projectCount: number;
  /** the project at a rank, 0 = the busiest; made on first use, the same whenever that is */
  project(rank: number): Project;
  /** a project, busy ones more often */
  drawProject(random: Random): Project;
  /** a client; runs of requests come from the same few, as on connections that are kept alive */
  drawClient(random: Random): Client;
}

export interface Project {
  /** exactly 20 lower-case letters */
  readonly ref: string;
  readonly rank: number;
  /** where its functions run */
  readonly region: string;
  readonly functions: readonly ProjectFunction[];
  /** a function, busy ones more often */
  drawFunction(random: Random): ProjectFunction;
}

interface ProjectFunction {
  readonly id: string;
  readonly slug: string;
  readonly version: number;
  /** median execution time, milliseconds */
  readonly medianMs: number;
}

/**
 * A client on one connection. What does not change from request to request is kept as JSON text, ready to be put into
 * an event.
 */
export interface Client {
  readonly ip: string;
  readonly country: string;
  readonly colo: string;
  readonly userAgent: string;
  /** members of metadata.request.headers from x_forwarded_proto on */
  readonly lastHeaders: string;
  /** member `"referer":...` */
  readonly referer: string;
  /** member `"cf":{...}` of metadata.request */
  readonly cf: string;
  readonly worker: string;
}

/**
 * Zipf's exponent of requests per project and per function: of 1,000 projects the busiest gets about 13 %, the last
 * 0.01 %.
 */
const PROJECT_EXPONENT = 1;
const FUNCTION_EXPONENT = 1.1;
/** Connections open at a time; at 1.4 kB each they take 6 MB. */
const CLIENTS = 4096;
/**
 * Share of requests that follow one on the same connection, and how many connections are at it at a time: together they
 * set how well events compress.
 */
const KEPT_ALIVE = 0.5;
const RECENT_CLIENTS = 16;

const slugs = [
  'send-receipt',
  'resize-image',
  'stripe-webhook',
  'daily-report',
  'chat-completion',
  'sync-inventory',
  'verify-captcha',
  'push-notify',
  'export-csv',
  'search-index',
  'geo-lookup',
  'invite-member',
];
const regions = [
  'eu-north-1',
  'eu-central-1',
  'us-east-1',
  'us-west-1',
  'ap-southeast-1',
  'ap-northeast-1',
  'sa-east-1',
];

/**
 * country, continent, EU, city, region, code of the region, postal code, latitude, longitude, time zone, data centre
 */
const places = [
  ['NO', 'EU', false, 'Oslo', 'Oslo County', '03', '0150', '59.91270', '10.74610', 'Europe/Oslo', 'OSL'],
  ['DE', 'EU', true, 'Frankfurt am Main', 'Hesse', 'HE', '60313', '50.11550', '8.68420', 'Europe/Berlin', 'FRA'],
  ['FR', 'EU', true, 'Paris', 'Ile-de-France', 'IDF', '75001', '48.85340', '2.34880', 'Europe/Paris', 'CDG'],
  ['NL', 'EU', true, 'Amsterdam', 'North Holland', 'NH', '1012', '52.37400', '4.88970', 'Europe/Amsterdam', 'AMS'],
  ['GB', 'EU', false, 'London', 'England', 'ENG', 'EC1A', '51.50850', '-0.12570', 'Europe/London', 'LHR'],
  ['PL', 'EU', true, 'Warsaw', 'Mazovia', '14', '00-001', '52.22980', '21.01180', 'Europe/Warsaw', 'WAW'],
  ['US', 'NA', false, 'Ashburn', 'Virginia', 'VA', '20149', '39.04370', '-77.48750', 'America/New_York', 'IAD'],
  ['US', 'NA', false, 'San Jose', 'California', 'CA', '95141', '37.18350', '-121.77140', 'America/Los_Angeles', 'SJC'],
  ['US', 'NA', false, 'Chicago', 'Illinois', 'IL', '60602', '41.85000', '-87.65010', 'America/Chicago', 'ORD'],
  ['CA', 'NA', false, 'Toronto', 'Ontario', 'ON', 'M5A', '43.70010', '-79.41630', 'America/Toronto', 'YYZ'],
  ['BR', 'SA', false, 'Sao Paulo', 'Sao Paulo', 'SP', '01000', '-23.54750', '-46.63610', 'America/Sao_Paulo', 'GRU'],
  [
    'AR',
    'SA',
    false,
    'Buenos Aires',
    'Buenos Aires F.D.',
    'C',
    '1871',
    '-34.61310',
    '-58.37720',
    'America/Argentina/Buenos_Aires',
    'EZE',
  ],
  ['IN', 'AS', false, 'Mumbai', 'Maharashtra', 'MH', '400017', '19.07480', '72.88560', 'Asia/Kolkata', 'BOM'],
  ['JP', 'AS', false, 'Tokyo', 'Tokyo', '13', '151-0053', '35.68930', '139.68990', 'Asia/Tokyo', 'NRT'],
  ['SG', 'AS', false, 'Singapore', 'Singapore', '01', '018989', '1.28970', '103.85010', 'Asia/Singapore', 'SIN'],
  ['ID', 'AS', false, 'Jakarta', 'Jakarta', 'JK', '10110', '-6.21460', '106.84510', 'Asia/Jakarta', 'CGK'],
  ['KE', 'AF', false, 'Nairobi', 'Nairobi County', '30', '00100', '-1.28330', '36.81670', 'Africa/Nairobi', 'NBO'],
  ['AU', 'OC', false, 'Sydney', 'New South Wales', 'NSW', '2000', '-33.86780', '151.20730', 'Australia/Sydney', 'SYD'],
] as const;

const networks = [
  'Example Telecom AS',
  'Example Mobile Networks',
  'Example Cable Communications',
  'Example Cloud Hosting LLC',
  'Example Fiber Oy',
  'Example Broadband Ltd',
];

/** user agent, client library, accept: a browser, an app or a server */
const agents: readonly (readonly [userAgent: string, library: string | null, accept: string])[] = [
  [
    'Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36',
    'supabase-js-web/2.47.10',
    '*/*',
  ],
  [
    'Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.1 Safari/605.1.15',
    'supabase-js-web/2.45.4',
    '*/*',
  ],
  [
    'Mozilla/5.0 (X11; Linux x86_64; rv:133.0) Gecko/20100101 Firefox/133.0',
    'supabase-js-web/2.47.10',
    'application/json',
  ],
  [
    'Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148',
    'supabase-js-web/2.46.1',
    '*/*',
  ],
  ['Dart/3.5 (dart:io)', 'supabase-flutter/2.8.0', 'application/json'],
  ['okhttp/4.12.0', 'supabase-kt/3.0.2', 'application/json'],
  ['node', 'supabase-ssr/0.5.2', '*/*'],
  ['python-httpx/0.27.2', 'supabase-py/2.10.0', 'application/json'],
  ['Deno/2.1.4', 'supabase-js-deno/2.47.10', '*/*'],
  ['ExampleMonitor/1.4 (+https://monitor.example)', null, '*/*'],
];
const referers = [
  'https://shop.example/',
  'https://app.example/dashboard',
  'https://www.learn.example/courses/42',
  'http://localhost:3000/',
  'https://chat.example/rooms',
  'https://admin.example/orders?page=2',
];
const ciphers = ['AEAD-AES128-GCM-SHA256', 'AEAD-AES256-GCM-SHA384', 'AEAD-CHACHA20-POLY1305-SHA256'];
const protocols = ['HTTP/2', 'HTTP/2', 'HTTP/3', 'HTTP/1.1'];

/** What draws what: each part has its own stream of numbers, so that one option does not change the others. */
const STREAM_PROJECT = 1;
const STREAM_CLIENT = 2;

export function createPopulation(seed: number, projectCount: number, functionsPerProject: number): Population {
  const drawRank = weightedIndex(zipf(projectCount, PROJECT_EXPONENT));
  const drawFunctionIndex =
    functionsPerProject === 0 ? () => 0 : weightedIndex(zipf(functionsPerProject, FUNCTION_EXPONENT));
  const made: (Project | undefined)[] = [];
  const clients: (Client | undefined)[] = [];
  const client = (i: number): Client => (clients[i] ??= createClient(createRandom(seed, STREAM_CLIENT, i)));
  const recent = Array.from({ length: RECENT_CLIENTS }, (_, i) => client(i));

  const project = (rank: number): Project =>
    (made[rank] ??= createProject(seed, rank, functionsPerProject, drawFunctionIndex));
  return {
    projectCount,
    project,
    drawProject: (random) => project(drawRank(random)),
    drawClient: (random) => {
      const slot = random.below(RECENT_CLIENTS);
      if (random.chance(KEPT_ALIVE)) return recent[slot] as Client;
      return (recent[slot] = client(random.below(CLIENTS)));
    },
  };
}

function createProject(
  seed: number,
  rank: number,
  functionCount: number,
  drawIndex: (random: Random) => number,
): Project {
  const random = createRandom(seed, STREAM_PROJECT, rank);
  const ref = random.letters(20);
  const region = random.pick(regions);
  const functions = Array.from({ length: functionCount }, (_, i): ProjectFunction => ({
    id: random.uuid(),
    slug:
      i < slugs.length
        ? (slugs[(rank + i) % slugs.length] as string)
        : `${slugs[i % slugs.length]}-${Math.floor(i / slugs.length)}`,
    version: 1 + random.below(40),
    medianMs: Math.round(random.logNormal(120, 1)) + 1,
  }));
  return {
    ref,
    rank,
    region,
    functions,
    drawFunction: (draw) => {
      const drawn = functions[drawIndex(draw)];
      if (drawn === undefined) throw new Error('functionsPerProject is 0, but a function was asked for');
      return drawn;
    },
  };
}

function createClient(random: Random): Client {
  const [country, continent, inEurope, city, region, regionCode, postalCode, latitude, longitude, timezone, colo] =
    random.pick(places);
  const [userAgent, library, accept] = random.pick(agents);
  const ip = `198.${18 + random.below(2)}.${random.below(256)}.${1 + random.below(254)}`;
  const score = random.chance(0.1) ? 1 + random.below(30) : 80 + random.below(20);
  return {
    ip,
    country,
    colo,
    userAgent,
    referer: `"referer":${userAgent.startsWith('Mozilla') ? `"${random.pick(referers)}"` : 'null'}`,
    lastHeaders: `"user_agent":"${userAgent}","x_forwarded_proto":"https","x_real_ip":"${ip}","x_client_info":${library === null ? 'null' : `"${library}"`},"accept":"${accept}"`,
    cf:
      `"cf":{"asOrganization":"${random.pick(networks)}","asn":${64_496 + random.below(16)},"city":"${city}","clientAcceptEncoding":"gzip, deflate, br","clientTcpRtt":${1 + Math.round(random.logNormal(25, 0.8))},` +
      `"clientTrustScore":${score},"colo":"${colo}","continent":"${continent}","country":"${country}","edgeRequestKeepAliveStatus":1,"httpProtocol":"${random.pick(protocols)}","isEUCountry":${inEurope ? '"1"' : 'null'},` +
      `"latitude":"${latitude}","longitude":"${longitude}","postalCode":"${postalCode}","region":"${region}","regionCode":"${regionCode}","timezone":"${timezone}","tlsCipher":"${random.pick(ciphers)}","tlsVersion":"TLSv1.3","requestPriority":null,` +
      `"botManagement":{"corporateProxy":false,"ja3Hash":"${random.hex(32)}","score":${score},"staticResource":${random.chance(0.05)},"verifiedBot":false,"detectionIds":[]},` +
      `"tlsClientAuth":{"certPresented":"0","certRevoked":"0","certVerified":"NONE"},` +
      `"tlsExportedAuthenticator":{"clientFinished":"${random.hex(64)}","clientHandshake":"${random.hex(64)}","serverFinished":"${random.hex(64)}","serverHandshake":"${random.hex(64)}"}}`,
    worker: `"logflare_worker":{"worker_id":"${random.hex(8).toUpperCase().slice(0, 6)}"}`,
  };
}
